#include "checkpoint_folder.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <system_error>

namespace engine::train::detail {

namespace fs = std::filesystem;

CheckpointFolder::CheckpointFolder(const std::string& directory, Logger log)
    : directory_(directory), log_(std::move(log)) {
  std::error_code error;
  fs::create_directories(directory_, error);
  ENGINE_CHECK(!error, Errc::io, "checkpoint.dir = {}: cannot create it: {}", directory,
               error.message());
  const fs::path lock = directory_ / ".lock";
  lock_ = ::open(lock.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  ENGINE_CHECK(lock_ >= 0, Errc::io, "checkpoint.dir = {}: cannot write there: {}", directory,
               std::generic_category().message(errno));
  if (::flock(lock_, LOCK_EX | LOCK_NB) != 0) {
    ::close(lock_);
    ENGINE_FAIL(
        Errc::invalid_argument,
        "checkpoint.dir = {} is in use by another run: wait for it, or use another directory",
        directory);
  }
  for (const auto& entry : fs::directory_iterator(directory_)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with("step-") && name.find(".tmp-") != std::string::npos) {
      fs::remove_all(entry.path(), error);
    }
  }
}

CheckpointFolder::~CheckpointFolder() { ::close(lock_); }

void CheckpointFolder::require_empty() const {
  const auto found = checkpoint::list_checkpoints(directory_);
  ENGINE_CHECK(
      found.empty(), Errc::invalid_argument,
      "checkpoint.dir = {} already holds a run ({}): use --resume auto, or another directory",
      directory_.string(), found.empty() ? "" : found.back().filename().string());
}

void CheckpointFolder::require_continues(const fs::path& path, std::int64_t step) const {
  const auto found = checkpoint::list_checkpoints(directory_);
  if (found.empty()) return;
  std::error_code ignored;
  ENGINE_CHECK(
      fs::equivalent(path.parent_path().empty() ? "." : path.parent_path(), directory_, ignored),
      Errc::invalid_argument,
      "checkpoint.dir = {} holds another run's {}, and {} is not among them: use another "
      "directory",
      directory_.string(), found.back().filename().string(), path.string());
  const std::string newest = found.back().filename().string();
  ENGINE_CHECK(
      newest <= checkpoint::checkpoint_name(step), Errc::invalid_argument,
      "checkpoint.dir = {} holds {}, newer than {}: move it away, or use another directory, "
      "so that a later --resume auto takes the right one",
      directory_.string(), newest, path.string());
}

std::optional<fs::path> CheckpointFolder::newest() {
  const auto found = checkpoint::list_checkpoints(directory_);
  for (auto path = found.rbegin(); path != found.rend(); ++path) {
    try {
      checkpoint::read_run_info(*path);
      return *path;
    } catch (const Error& e) {
      if (e.code() != Errc::corrupt_data) throw;
      set_aside(*path, e.what());
    }
  }
  ENGINE_CHECK(
      found.empty(), Errc::corrupt_data,
      "checkpoint.dir = {}: none of its {} checkpoints is whole (kept as *.damaged): restore "
      "one, or start afresh in another directory",
      directory_.string(), found.size());
  return std::nullopt;
}

void CheckpointFolder::resumed_at(std::int64_t step) {
  std::error_code ignored;
  if (fs::exists(directory_ / checkpoint::checkpoint_name(step), ignored)) saved_step_ = step;
}

fs::path CheckpointFolder::save(Session& session, checkpoint::RunInfo info, std::int64_t keep) {
  fs::path path = directory_ / checkpoint::checkpoint_name(info.step);
  std::error_code ignored;
  if (fs::exists(fs::symlink_status(path, ignored))) {
    set_aside(path, "its name is needed and it is not of this run");
  }
  const std::int64_t step = info.step;
  session.save(path.string(), std::move(info));
  saved_step_ = step;
  const auto all = checkpoint::list_checkpoints(directory_);
  for (std::size_t i = 0; i + static_cast<std::size_t>(keep) < all.size(); ++i) {
    fs::remove_all(all[i], ignored);
    if (ignored) log_.warning("cannot remove {}: {}", all[i].string(), ignored.message());
  }
  return path;
}

void CheckpointFolder::set_aside(const fs::path& path, std::string_view why) {
  fs::path aside = path.string() + ".damaged";
  for (int i = 2; fs::exists(aside); ++i) aside = fmt::format("{}.damaged{}", path.string(), i);
  std::error_code error;
  fs::rename(path, aside, error);
  ENGINE_CHECK(!error, Errc::io, "cannot rename {} to {}: {}", path.string(), aside.string(),
               error.message());
  log_.warning("passing over {} (kept as {}): {}", path.string(), aside.filename().string(), why);
}

}  // namespace engine::train::detail
