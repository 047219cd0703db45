#pragma once
#include <filesystem>
#include <system_error>

namespace engine::data::detail {

/// True if `path` is there; false also where the system does not say.
inline bool exists(const std::filesystem::path& path) noexcept {
  std::error_code ignored;
  return std::filesystem::exists(path, ignored);
}

}  // namespace engine::data::detail
