#include <gtest/gtest.h>
#include <sys/wait.h>

#include <algorithm>
#include <cstdlib>

#include "tests/data/support.hpp"

namespace engine::data {
namespace {

struct Outcome {
  int status;
  std::string errors;
};

Outcome run(const TemporaryDirectory& dir, const std::string& arguments) {
  const std::string errors = (dir / "stderr").string();
  const std::string command = std::string(ENGINE_BIN_DIR) + "/prepare " + arguments + " 2> " +
                              errors + " > " + (dir / "stdout").string();
  const int status = std::system(command.c_str());
  return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, read_file(errors)};
}

TEST(PrepareApp, SaysHowItEndedByItsExitStatus) {
  const TemporaryDirectory dir;
  write_file(dir / "in.txt", "0123456789");
  write_file(dir / "bad.jsonl", "{");
  const std::string out = " --out " + (dir / "out").string() + " ";
  const std::string in = (dir / "in.txt").string();
  const Outcome done = run(dir, "--quiet --tokenizer bytes" + out + in);
  EXPECT_EQ(done.status, 0);
  EXPECT_EQ(done.errors, "");
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
    const Outcome failed = run(dir, arguments);
    EXPECT_EQ(failed.status, status) << arguments;
    EXPECT_EQ(failed.errors.rfind("error: ", 0), 0U) << failed.errors;
    EXPECT_EQ(std::count(failed.errors.begin(), failed.errors.end(), '\n'), 1) << failed.errors;
  }
}

TEST(PrepareApp, PrintsItsHelp) {
  const TemporaryDirectory dir;
  EXPECT_EQ(run(dir, "--help").status, 0);
  EXPECT_NE(read_file(dir / "stdout").find("--append-eot"), std::string::npos);
}

}  // namespace
}  // namespace engine::data
