#include "engine/core/atomic_file.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "engine/core/error.hpp"

namespace engine {

namespace {

constexpr std::size_t kPendingBytes = std::size_t{256} << 10;

std::filesystem::path directory_of(const std::filesystem::path& path) {
  return path.has_parent_path() ? path.parent_path() : std::filesystem::path(".");
}

}  // namespace

AtomicFile::AtomicFile(std::filesystem::path path) : path_(std::move(path)) {
  for (int attempt = 0; fd_ < 0; ++attempt) {
    temporary_ = path_.string() + fmt::format(".tmp.{}.{}", ::getpid(), attempt);
    fd_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    ENGINE_CHECK(fd_ >= 0 || errno == EEXIST, Errc::io, "cannot create {}: {}", temporary_.string(),
                 std::strerror(errno));
  }
}

AtomicFile::~AtomicFile() { discard(); }

void AtomicFile::write(std::span<const std::byte> bytes) {
  ENGINE_ASSERT(fd_ >= 0, "write to {} after it was finished or failed", path_.string());
  if (pending_.size() + bytes.size() > kPendingBytes) {
    write_through(pending_);
    pending_.clear();
  }
  if (bytes.size() >= kPendingBytes) {
    write_through(bytes);
  } else {
    pending_.insert(pending_.end(), bytes.begin(), bytes.end());
  }
}

void AtomicFile::write(std::string_view text) { write(std::as_bytes(std::span(text))); }

void AtomicFile::sync() {
  ENGINE_ASSERT(fd_ >= 0, "flush of {} after it was finished or failed", path_.string());
  write_through(pending_);
  pending_.clear();
  if (::fsync(fd_) != 0) fail("flush");
}

void AtomicFile::finish() {
  sync();
  if (::close(std::exchange(fd_, -1)) != 0) fail("close");
}

void AtomicFile::commit() {
  if (fd_ >= 0) finish();
  ENGINE_ASSERT(!temporary_.empty(), "commit of {} after it was committed or failed",
                path_.string());
  if (::rename(temporary_.c_str(), path_.c_str()) != 0) fail("rename to");
  temporary_.clear();
  sync_directory(directory_of(path_));
}

void AtomicFile::write_through(std::span<const std::byte> bytes) {
  constexpr std::size_t kMost = std::size_t{1} << 30;  // Linux writes less than 2 GiB at a time
  while (!bytes.empty()) {
    const auto written = ::write(fd_, bytes.data(), std::min(bytes.size(), kMost));
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) fail("write");
    bytes = bytes.subspan(static_cast<std::size_t>(written));
  }
}

void AtomicFile::fail(std::string_view action) {
  const int reason = errno;
  discard();
  ENGINE_FAIL(Errc::io, "cannot {} {}: {}; nothing was kept, make room or check the path", action,
              path_.string(), std::strerror(reason));
}

void AtomicFile::discard() noexcept {
  if (fd_ >= 0) ::close(std::exchange(fd_, -1));
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
  temporary_.clear();
}

void write_file(const std::filesystem::path& path, std::string_view text) {
  AtomicFile file(path);
  file.write(text);
  file.commit();
}

void sync_directory(const std::filesystem::path& directory) {
  const int fd = ::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  ENGINE_CHECK(fd >= 0, Errc::io, "cannot open directory {}: {}", directory.string(),
               std::strerror(errno));
  const int status = ::fsync(fd);
  const int reason = errno;
  ::close(fd);
  // Some file systems cannot flush a directory and say EINVAL; there is nothing more to do there.
  ENGINE_CHECK(status == 0 || reason == EINVAL, Errc::io, "cannot flush directory {}: {}",
               directory.string(), std::strerror(reason));
}

}  // namespace engine
