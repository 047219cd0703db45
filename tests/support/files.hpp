#pragma once
// Files in one call, and errors by code and text.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <initializer_list>
#include <iterator>
#include <string>
#include <string_view>

#include "engine/core/error.hpp"

namespace engine::test {

inline void write_file(const std::filesystem::path& path, std::string_view contents) {
  std::ofstream(path, std::ios::binary) << contents;
}

inline std::string read_file(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  EXPECT_TRUE(file) << path;
  return {std::istreambuf_iterator<char>(file), {}};
}

/// Expects an error of `code` whose one line contains every one of `parts`.
template <class F>
void expect_error(Errc code, std::initializer_list<std::string_view> parts, F&& run) {
  try {
    run();
  } catch (const Error& error) {
    const std::string_view what = error.what();
    EXPECT_EQ(error.code(), code) << what;
    EXPECT_EQ(what.find('\n'), std::string_view::npos) << what;
    for (const std::string_view part : parts) {
      EXPECT_NE(what.find(part), std::string_view::npos) << "no \"" << part << "\" in: " << what;
    }
    return;
  }
  ADD_FAILURE() << "expected an error" << (parts.size() > 0 ? " about: " : "")
                << (parts.size() > 0 ? *parts.begin() : "");
}

template <class F>
void expect_error(Errc code, std::string_view part, F&& run) {
  expect_error(code, {part}, run);
}

}  // namespace engine::test
