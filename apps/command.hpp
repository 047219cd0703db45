#pragma once
// What every command shares: options, --help, --version, --quiet, one-line errors and exit codes.
// command.cpp alone includes the library behind it, which is slow to compile.
#include <fmt/core.h>

#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "engine/core/error.hpp"
#include "engine/core/function_ref.hpp"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace engine::apps {

/// An option of a command; the calls refine it.
class Option {
 public:
  explicit Option(CLI::Option* option) noexcept : option_(option) {}

  /// The command line must have it.
  Option required();
  /// The help shows the value that it has now.
  Option show_default();
  /// Any other value is refused.
  Option choices(const std::vector<std::string>& values);
  /// May be given many times, with one value each, which the help calls `value_name`.
  Option repeatable(const std::string& value_name);

 private:
  CLI::Option* option_;
};

/// A command line with the flags that all commands have.
class Command {
 public:
  Command(const std::string& name, const std::string& description);
  ~Command();
  Command(const Command&) = delete;
  Command& operator=(const Command&) = delete;

  /// `--name`: sets `value`; `!--name` clears it.
  void flag(const std::string& name, bool& value, const std::string& help);
  /// `--name` with a value, or `NAME` for an argument by its position. T: std::string, double, int,
  /// std::int64_t, std::uint64_t, std::filesystem::path, or a std::vector of strings or paths.
  template <class T>
  Option option(const std::string& name, T& value, const std::string& help);
  bool quiet() const noexcept { return quiet_; }

  /// Parses, runs `body` and turns what is thrown into a line on stderr and an exit code.
  int run(int argc, char** argv, FunctionRef<int()> body);

 private:
  std::unique_ptr<CLI::App> app_;
  bool quiet_ = false;
};

}  // namespace engine::apps
