#pragma once
#include <cstddef>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace engine::data::detail {

/// A file that appears under its name whole or not at all: written as `NAME.tmp`, synced, renamed.
/// Without `publish` the temporary file is removed again. Every failure is Errc::io.
class OutputFile {
 public:
  explicit OutputFile(std::filesystem::path path);
  ~OutputFile();
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  /// Buffered.
  void write(std::span<const std::byte> bytes);
  void write(std::string_view text) { write(std::as_bytes(std::span(text))); }

  /// Writes out what is buffered, syncs and closes. After it only `publish` may follow.
  void finish();

  /// Gives the finished file its name, replacing what was there.
  void publish();

 private:
  void flush();
  void write_out(std::span<const std::byte> bytes);
  [[noreturn]] void fail(std::string_view what) const;

  std::filesystem::path path_;
  std::filesystem::path temporary_;
  std::vector<std::byte> buffer_;
  int fd_ = -1;
  bool published_ = false;
};

/// Syncs a directory, so that renames in it are on disk. Throws: Errc::io.
void sync_directory(const std::filesystem::path& directory);

}  // namespace engine::data::detail
