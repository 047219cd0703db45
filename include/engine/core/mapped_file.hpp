#pragma once
#include <cstddef>
#include <filesystem>
#include <span>

namespace engine {

/// A whole file mapped read-only into memory. Move-only; views of `bytes()` end with the object.
/// The file must not shrink while it is mapped.
class MappedFile {
 public:
  /// An object without a file: no bytes, empty path.
  MappedFile() = default;

  /// Maps `path`. Empty files are allowed.
  /// Throws: Errc::io with the path and the system's reason.
  explicit MappedFile(std::filesystem::path path);

  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  std::span<const std::byte> bytes() const noexcept { return bytes_; }
  std::size_t size() const noexcept { return bytes_.size(); }
  const std::filesystem::path& path() const noexcept { return path_; }

 private:
  void unmap() noexcept;

  std::filesystem::path path_;
  std::span<const std::byte> bytes_;
};

}  // namespace engine
