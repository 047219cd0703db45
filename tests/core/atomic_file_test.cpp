#include "engine/core/atomic_file.hpp"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>
#include <fstream>
#include <sstream>

#include "engine/core/error.hpp"

namespace engine {
namespace {

namespace fs = std::filesystem;

class AtomicFileTest : public testing::Test {
 protected:
  AtomicFileTest()
      : directory_(fs::path(testing::TempDir()) /
                   fmt::format("atomic_file_{}_{}", ::getpid(),
                               testing::UnitTest::GetInstance()->current_test_info()->name())) {
    fs::remove_all(directory_);
    fs::create_directories(directory_);
  }
  ~AtomicFileTest() override { fs::remove_all(directory_); }

  std::string read(const fs::path& path) const {
    std::ostringstream text;
    text << std::ifstream(path).rdbuf();
    return text.str();
  }
  std::ptrdiff_t entries() const {
    return std::distance(fs::directory_iterator(directory_), fs::directory_iterator());
  }

  fs::path directory_;
};

TEST_F(AtomicFileTest, AppearsOnlyWithCommit) {
  const fs::path path = directory_ / "a";
  write_file(path, "old");
  {
    AtomicFile file(path);
    file.write("new, but never committed");
    EXPECT_EQ(read(path), "old");
  }
  EXPECT_EQ(read(path), "old");
  EXPECT_EQ(entries(), 1);
  AtomicFile file(path);
  const std::string large(1 << 20, 'x');
  file.write("head");
  file.write(large);
  file.sync();
  file.write("tail");
  file.commit();
  EXPECT_EQ(read(path), "head" + large + "tail");
  EXPECT_EQ(entries(), 1);
  EXPECT_THROW(file.write("more"), Error);
}

TEST_F(AtomicFileTest, FinishedFilesWaitForTheirCommit) {
  AtomicFile file(directory_ / "a");
  file.write("text");
  file.finish();
  EXPECT_FALSE(fs::exists(directory_ / "a"));
  EXPECT_THROW(file.write("more"), Error);
  file.commit();
  EXPECT_EQ(read(directory_ / "a"), "text");
  EXPECT_THROW(file.commit(), Error);
  { AtomicFile(directory_ / "b").finish(); }
  EXPECT_EQ(entries(), 1);
}

TEST_F(AtomicFileTest, TwoWritersOfOneNameDoNotMix) {
  AtomicFile a(directory_ / "a");
  AtomicFile b(directory_ / "a");
  a.write("first");
  b.write("second");
  a.commit();
  b.commit();
  EXPECT_EQ(read(directory_ / "a"), "second");
  EXPECT_EQ(entries(), 1);
}

TEST_F(AtomicFileTest, NamesPathAndReasonOfAFailure) {
  try {
    AtomicFile file(directory_ / "missing" / "a");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Errc::io);
    EXPECT_NE(std::string(error.what()).find("missing/a"), std::string::npos);
    EXPECT_NE(std::string(error.what()).find("No such file"), std::string::npos);
  }
  fs::create_directory(directory_ / "taken");
  AtomicFile file(directory_ / "taken");
  EXPECT_THROW(file.commit(), Error);
  EXPECT_EQ(entries(), 1);
  EXPECT_THROW(sync_directory(directory_ / "nowhere"), Error);
}

TEST_F(AtomicFileTest, LeavesNothingWhenTheDiskIsFull) {
  write_file(directory_ / "a", "old");
  std::signal(SIGXFSZ, SIG_IGN);
  rlimit before = {};
  getrlimit(RLIMIT_FSIZE, &before);
  const rlimit small = {100000, before.rlim_max};
  setrlimit(RLIMIT_FSIZE, &small);
  Errc code = Errc::internal;
  try {
    AtomicFile file(directory_ / "a");
    file.write(std::string(150000, 'x'));
    file.commit();
  } catch (const Error& error) {
    code = error.code();
  }
  setrlimit(RLIMIT_FSIZE, &before);
  EXPECT_EQ(code, Errc::io);
  EXPECT_EQ(read(directory_ / "a"), "old");
  EXPECT_EQ(entries(), 1);
}

}  // namespace
}  // namespace engine
