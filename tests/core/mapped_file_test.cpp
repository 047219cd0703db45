#include "engine/core/mapped_file.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <string>
#include <utility>

#include "engine/core/error.hpp"

namespace engine {
namespace {

std::filesystem::path temporary(const std::string& name) {
  return std::filesystem::temp_directory_path() /
         ("engine_mapped_" + std::to_string(::getpid()) + "_" + name);
}

TEST(MappedFile, ShowsTheBytesOfTheFile) {
  const auto path = temporary("bytes");
  std::ofstream(path) << "abc";
  const MappedFile file(path);
  ASSERT_EQ(file.size(), 3U);
  EXPECT_EQ(file.bytes()[2], std::byte{'c'});
  EXPECT_EQ(file.path(), path);
  std::filesystem::remove(path);
}

TEST(MappedFile, AllowsEmptyFiles) {
  const auto path = temporary("empty");
  std::ofstream(path).flush();
  EXPECT_TRUE(MappedFile(path).bytes().empty());
  std::filesystem::remove(path);
}

TEST(MappedFile, MovesTheMapping) {
  const auto path = temporary("move");
  std::ofstream(path) << "xy";
  MappedFile first(path);
  MappedFile second(std::move(first));
  first = MappedFile(path);
  second = std::move(first);
  EXPECT_EQ(second.size(), 2U);
  EXPECT_EQ(second.bytes()[0], std::byte{'x'});
  std::filesystem::remove(path);
}

TEST(MappedFile, NamesTheMissingFileAndTheReason) {
  try {
    MappedFile file("/no/such/file");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Errc::io);
    EXPECT_STREQ(error.what(), "cannot open /no/such/file: No such file or directory");
  }
}

TEST(MappedFile, RefusesDirectories) { EXPECT_THROW(MappedFile("/tmp"), Error); }

}  // namespace
}  // namespace engine
