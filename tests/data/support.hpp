#pragma once
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include "engine/core/error.hpp"

namespace engine::data {

/// A directory for the length of a test.
class TemporaryDirectory {
 public:
  TemporaryDirectory() {
    static int count = 0;
    path_ = std::filesystem::temp_directory_path() /
            ("engine_data_" + std::to_string(::getpid()) + "_" + std::to_string(count++));
    std::filesystem::create_directories(path_);
  }
  ~TemporaryDirectory() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;

  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path operator/(const std::string& name) const { return path_ / name; }

 private:
  std::filesystem::path path_;
};

inline void write_file(const std::filesystem::path& path, std::string_view contents) {
  std::ofstream(path, std::ios::binary)
      .write(contents.data(), static_cast<std::streamsize>(contents.size()));
}

inline std::string read_file(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  EXPECT_TRUE(file) << path;
  return {std::istreambuf_iterator<char>(file), {}};
}

/// The bytes of `values`, little-endian as this machine.
template <typename T>
std::string bytes_of(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

/// Expects that `body` throws `code` with a message that contains `part`.
template <typename F>
void expect_error(Errc code, std::string_view part, F&& body) {
  try {
    body();
    ADD_FAILURE() << "expected an error about: " << part;
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    EXPECT_NE(std::string_view(error.what()).find(part), std::string_view::npos)
        << error.what() << "\n expected: " << part;
    EXPECT_EQ(std::string_view(error.what()).find('\n'), std::string_view::npos) << error.what();
  }
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
