#pragma once
#include <cstddef>
#include <filesystem>
#include <span>
#include <string_view>
#include <vector>

namespace engine {

/// A file that appears under its name only when it is complete. Until `commit` it lies beside it
/// under a temporary name; when a write fails, or the object goes without a commit, the temporary
/// is removed and whatever had the name before stays.
class AtomicFile {
 public:
  /// Creates the temporary. Throws Errc::io with the path and the system's reason, like all below.
  explicit AtomicFile(std::filesystem::path path);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  /// Appends bytes; small pieces are collected.
  void write(std::span<const std::byte> bytes);
  void write(std::string_view text);
  /// Flushes what was written to the disk, so that `commit` needs no more room.
  void sync();
  /// Flushes to the disk and closes; after it only `commit` may follow. For several files that are
  /// to appear together: finish all, then commit all.
  void finish();
  /// Finishes, if need be, gives the file its name and flushes the directory. At most once.
  void commit();

  const std::filesystem::path& path() const noexcept { return path_; }

 private:
  void write_through(std::span<const std::byte> bytes);
  [[noreturn]] void fail(std::string_view action);
  void discard() noexcept;

  std::filesystem::path path_;
  std::filesystem::path temporary_;
  std::vector<std::byte> pending_;
  int fd_ = -1;
};

/// Writes a whole file atomically. Throws Errc::io.
void write_file(const std::filesystem::path& path, std::string_view text);

/// Flushes a directory, so that files created or renamed in it survive a crash. Throws Errc::io.
void sync_directory(const std::filesystem::path& directory);

}  // namespace engine
