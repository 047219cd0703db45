#pragma once
// Shared by the checkpoint tests: a directory that goes away, files from bytes, errors by code.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include "engine/core/error.hpp"

namespace engine::checkpoint {

/// A directory of the running test, empty at first, removed at the end.
class Scratch {
 public:
  Scratch() {
    const auto* test = testing::UnitTest::GetInstance()->current_test_info();
    std::string name = std::string(test->test_suite_name()) + "_" + test->name();
    for (char& c : name) c = c == '/' ? '_' : c;
    path_ = std::filesystem::path(testing::TempDir()) / fmt::format("{}_{}", name, ::getpid());
    std::filesystem::remove_all(path_);
    std::filesystem::create_directories(path_);
  }
  ~Scratch() { std::filesystem::remove_all(path_); }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  std::filesystem::path operator/(std::string_view name) const { return path_ / name; }
  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path write(std::string_view name, std::string_view bytes) const {
    std::ofstream(path_ / name, std::ios::binary) << bytes;
    return path_ / name;
  }
  std::ptrdiff_t entries() const {
    return std::distance(std::filesystem::directory_iterator(path_),
                         std::filesystem::directory_iterator());
  }

 private:
  std::filesystem::path path_;
};

inline std::string read_bytes(const std::filesystem::path& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

/// Bytes of a safetensors file with this header text and that many bytes of data.
inline std::string safetensors_bytes(std::string_view header, std::size_t data_bytes) {
  const std::uint64_t length = header.size();
  std::string bytes(8, '\0');
  std::memcpy(bytes.data(), &length, 8);
  return bytes + std::string(header) + std::string(data_bytes, '\1');
}

/// Expects an error of `code` whose one line contains every one of `parts`.
template <class F>
void expect_error(Errc code, std::initializer_list<std::string_view> parts, F&& run) {
  try {
    run();
  } catch (const Error& error) {
    const std::string what = error.what();
    EXPECT_EQ(error.code(), code) << what;
    EXPECT_EQ(what.find('\n'), std::string::npos) << what;
    for (const std::string_view part : parts) {
      EXPECT_NE(what.find(part), std::string::npos) << "no \"" << part << "\" in: " << what;
    }
    return;
  }
  ADD_FAILURE() << "no error";
}

}  // namespace engine::checkpoint
