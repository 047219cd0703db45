#include "engine/core/atomic_file.hpp"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>

#include "engine/core/error.hpp"
#include "tests/support/files.hpp"
#include "tests/support/temporary_directory.hpp"

namespace engine {
namespace {

namespace fs = std::filesystem;
using test::read_file;
using test::TemporaryDirectory;

TEST(AtomicFile, AppearsOnlyWithCommit) {
  const TemporaryDirectory directory;
  const fs::path path = directory / "a";
  write_file(path, "old");
  {
    AtomicFile file(path);
    file.write("new, but never committed");
    EXPECT_EQ(read_file(path), "old");
  }
  EXPECT_EQ(read_file(path), "old");
  EXPECT_EQ(directory.entries(), 1);
  AtomicFile file(path);
  const std::string large(1 << 20, 'x');
  file.write("head");
  file.write(large);
  file.sync();
  file.write("tail");
  file.commit();
  EXPECT_EQ(read_file(path), "head" + large + "tail");
  EXPECT_EQ(directory.entries(), 1);
  EXPECT_THROW(file.write("more"), Error);
}

TEST(AtomicFile, FinishedFilesWaitForTheirCommit) {
  const TemporaryDirectory directory;
  AtomicFile file(directory / "a");
  file.write("text");
  file.finish();
  EXPECT_FALSE(fs::exists(directory / "a"));
  EXPECT_THROW(file.write("more"), Error);
  file.commit();
  EXPECT_EQ(read_file(directory / "a"), "text");
  EXPECT_THROW(file.commit(), Error);
  { AtomicFile(directory / "b").finish(); }
  EXPECT_EQ(directory.entries(), 1);
}

TEST(AtomicFile, TwoWritersOfOneNameDoNotMix) {
  const TemporaryDirectory directory;
  AtomicFile a(directory / "a");
  AtomicFile b(directory / "a");
  a.write("first");
  b.write("second");
  a.commit();
  b.commit();
  EXPECT_EQ(read_file(directory / "a"), "second");
  EXPECT_EQ(directory.entries(), 1);
}

TEST(AtomicFile, NamesPathAndReasonOfAFailure) {
  const TemporaryDirectory directory;
  try {
    AtomicFile file(directory / "missing" / "a");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Errc::io);
    EXPECT_NE(std::string(error.what()).find("missing/a"), std::string::npos);
    EXPECT_NE(std::string(error.what()).find("No such file"), std::string::npos);
  }
  fs::create_directory(directory / "taken");
  AtomicFile file(directory / "taken");
  EXPECT_THROW(file.commit(), Error);
  EXPECT_EQ(directory.entries(), 1);
  EXPECT_THROW(sync_directory(directory / "nowhere"), Error);
}

TEST(AtomicFile, LeavesNothingWhenTheDiskIsFull) {
  const TemporaryDirectory directory;
  write_file(directory / "a", "old");
  std::signal(SIGXFSZ, SIG_IGN);
  rlimit before = {};
  getrlimit(RLIMIT_FSIZE, &before);
  const rlimit small = {100000, before.rlim_max};
  setrlimit(RLIMIT_FSIZE, &small);
  Errc code = Errc::internal;
  try {
    AtomicFile file(directory / "a");
    file.write(std::string(150000, 'x'));
    file.commit();
  } catch (const Error& error) {
    code = error.code();
  }
  setrlimit(RLIMIT_FSIZE, &before);
  EXPECT_EQ(code, Errc::io);
  EXPECT_EQ(read_file(directory / "a"), "old");
  EXPECT_EQ(directory.entries(), 1);
}

}  // namespace
}  // namespace engine
