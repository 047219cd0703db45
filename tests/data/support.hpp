#pragma once
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "tests/support/files.hpp"
#include "tests/support/temporary_directory.hpp"

namespace engine::data {

using test::expect_error;
using test::read_file;
using test::TemporaryDirectory;
using test::write_file;

/// The bytes of `values`, little-endian as this machine.
template <typename T>
std::string bytes_of(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

/// A file or folder of the shared data, which is not part of the repository: below `variable` if
/// that is set in the environment, else below ../shared/data. Empty if it is missing.
inline std::filesystem::path shared_data(const char* variable, const std::string& name) {
  const char* set = std::getenv(variable);
  const std::filesystem::path path =
      set != nullptr ? std::filesystem::path(set)
                     : std::filesystem::path(ENGINE_TEST_DIR) / ".." / ".." / "shared/data" / name;
  return std::filesystem::exists(path) ? path : std::filesystem::path();
}

}  // namespace engine::data
