#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "tests/support/files.hpp"
#include "tests/support/process.hpp"
#include "tests/support/temporary_directory.hpp"

namespace engine {
namespace {

using test::Finished;
using test::TemporaryDirectory;
using test::write_file;

Finished run(const TemporaryDirectory& dir, const std::string& arguments) {
  return test::run_command(dir.path().string(), "prepare", arguments);
}

TEST(PrepareApp, SaysHowItEndedByItsExitStatus) {
  const TemporaryDirectory dir;
  write_file(dir / "in.txt", "0123456789");
  write_file(dir / "bad.jsonl", "{");
  const std::string out = " --out " + (dir / "out").string() + " ";
  const std::string in = (dir / "in.txt").string();
  const Finished done = run(dir, "--quiet --tokenizer bytes" + out + in);
  EXPECT_EQ(done.status, 0);
  EXPECT_EQ(done.err, "");
  EXPECT_TRUE(std::filesystem::exists(dir / "out/train.bin"));
  const std::string again = "--force --tokenizer bytes" + out;
  const std::pair<std::string, int> cases[] = {
      {"--tokenizer bytes" + out + in, 2},
      {"--tokenizer words" + out + in, 2},
      {"--tokenizer bytes" + out, 2},
      {"--no-such-flag", 2},
      {again + "--split word " + in, 2},
      {again + "--val-fraction 2 " + in, 2},
      {again + "--val-fraction x " + in, 2},
      {again + (dir / "bad.jsonl").string(), 3},
      {again + (dir / "missing.txt").string(), 3},
  };
  for (const auto& [arguments, status] : cases) {
    const Finished failed = run(dir, arguments);
    EXPECT_EQ(failed.status, status) << arguments;
    EXPECT_EQ(failed.err.rfind("error: ", 0), 0U) << failed.err;
    EXPECT_EQ(std::count(failed.err.begin(), failed.err.end(), '\n'), 1) << failed.err;
  }
}

TEST(PrepareApp, PrintsItsHelp) {
  const TemporaryDirectory dir;
  const Finished help = run(dir, "--help");
  EXPECT_EQ(help.status, 0);
  EXPECT_NE(help.out.find("--append-eot"), std::string::npos);
}

}  // namespace
}  // namespace engine
