#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <utility>

namespace engine::train {
namespace {

/// What the command prints, its errors too, and its exit status.
std::pair<int, std::string> run(const std::string& arguments) {
  const std::string command = std::string(ENGINE_BIN_DIR) + "/train " + arguments + " 2>&1";
  std::FILE* pipe = ::popen(command.c_str(), "r");
  if (pipe == nullptr) return {-1, "popen failed"};
  std::string output;
  for (int c = std::fgetc(pipe); c != EOF; c = std::fgetc(pipe)) output += static_cast<char>(c);
  const int status = ::pclose(pipe);
  return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, output};
}

TEST(TrainApp, SetTakesOneArgumentEachTime) {
  const auto [status, output] = run("--set train.steps=1 no_such.toml --set train.seed=2");
  EXPECT_EQ(status, 2) << output;
  EXPECT_NE(output.find("no_such.toml"), std::string::npos) << output;
  const auto [refused, why] = run("--set train.steps=1 no_such.toml --set a");
  EXPECT_EQ(refused, 2) << why;
  EXPECT_NE(why.find("--set a"), std::string::npos) << why;
}

}  // namespace
}  // namespace engine::train
