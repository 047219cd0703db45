#pragma once
// What every command shares: --help, --version, --quiet, one-line errors and exit codes.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <exception>
#include <functional>
#include <string>

#include "engine/core/error.hpp"
#include "engine/core/version.hpp"

namespace engine::apps {

/// A command line with the flags that all commands have.
class Command {
 public:
  Command(const std::string& name, const std::string& description) : app_(description, name) {
    app_.add_flag("--quiet", quiet_, "Print nothing but errors");
    app_.set_version_flag("--version", version_report());
  }

  CLI::App& options() noexcept { return app_; }
  bool quiet() const noexcept { return quiet_; }

  /// Parses, runs `body` and turns what is thrown into a line on stderr and an exit code.
  int run(int argc, char** argv, const std::function<int()>& body) {
    try {
      app_.parse(argc, argv);
      return body();
    } catch (const CLI::ParseError& error) {
      if (error.get_exit_code() == 0) return app_.exit(error);
      return report(Errc::invalid_argument,
                    std::string(error.what()) + "; see " + app_.get_name() + " --help");
    } catch (const Error& error) {
      return report(error.code(), error.what());
    } catch (const std::bad_alloc&) {
      return report(Errc::out_of_memory, "out of memory");
    } catch (const std::exception& error) {
      return report(Errc::internal, error.what());
    }
  }

 private:
  static int report(Errc code, std::string message) {
    for (char& c : message) {
      if (c == '\n' || c == '\r') c = ' ';
    }
    std::fflush(stdout);
    fmt::print(stderr, "error: {}\n", message);
    return exit_code(code);
  }

  CLI::App app_;
  bool quiet_ = false;
};

}  // namespace engine::apps
