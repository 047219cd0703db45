#include "src/data/output_file.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "engine/core/error.hpp"

namespace engine::data::detail {
namespace {

constexpr std::size_t kBufferBytes = std::size_t{1} << 20;

std::filesystem::path with_suffix(std::filesystem::path path, const char* suffix) {
  path += suffix;
  return path;
}

}  // namespace

OutputFile::OutputFile(std::filesystem::path path)
    : path_(std::move(path)), temporary_(with_suffix(path_, ".tmp")) {
  buffer_.reserve(kBufferBytes);
  fd_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (fd_ < 0) fail("create");
}

OutputFile::~OutputFile() {
  if (fd_ >= 0) ::close(fd_);
  if (!published_) ::unlink(temporary_.c_str());
}

void OutputFile::write(std::span<const std::byte> bytes) {
  if (buffer_.size() + bytes.size() > kBufferBytes) flush();
  if (bytes.size() > kBufferBytes) {
    write_out(bytes);
  } else {
    buffer_.insert(buffer_.end(), bytes.begin(), bytes.end());
  }
}

void OutputFile::flush() {
  write_out(buffer_);
  buffer_.clear();
}

void OutputFile::write_out(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(fd_, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) fail("write");
    bytes = bytes.subspan(static_cast<std::size_t>(written));
  }
}

void OutputFile::finish() {
  flush();
  if (::fsync(fd_) != 0) fail("sync");
  if (::close(std::exchange(fd_, -1)) != 0) fail("close");
}

void OutputFile::publish() {
  ENGINE_ASSERT(fd_ < 0, "{} is published before it is finished", path_.string());
  if (::rename(temporary_.c_str(), path_.c_str()) != 0) fail("rename");
  published_ = true;
}

void OutputFile::fail(std::string_view what) const {
  const int reason = errno;
  ENGINE_FAIL(Errc::io, "cannot {} {}: {}", what, temporary_.string(), std::strerror(reason));
}

void sync_directory(const std::filesystem::path& directory) {
  const int fd = ::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  const bool synced = fd >= 0 && ::fsync(fd) == 0;
  const int reason = errno;
  if (fd >= 0) ::close(fd);
  ENGINE_CHECK(synced, Errc::io, "cannot sync {}: {}", directory.string(), std::strerror(reason));
}

}  // namespace engine::data::detail
