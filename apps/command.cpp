#include "command.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <new>
#include <system_error>

#include "engine/core/version.hpp"

namespace engine::apps {

namespace {

/// One line on stderr, whatever the message quotes. Never throws: stderr may be closed.
int report(Errc code, std::string message) {
  constexpr std::size_t kMost = 2000;
  if (message.size() > kMost) message = message.substr(0, kMost) + "...";
  for (char& c : message) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = ' ';
  }
  std::fflush(stdout);
  std::fputs(("error: " + message + "\n").c_str(), stderr);
  return exit_code(code);
}

/// Gives the standard descriptors something to be, so that no file of ours becomes "stderr".
void open_standard_descriptors() {
  for (int fd = 0; fd <= 2; ++fd) {
    if (::fcntl(fd, F_GETFD) == -1) ::open("/dev/null", fd == 0 ? O_RDONLY : O_WRONLY);
  }
}

/// A mapped file that somebody shortens raises SIGBUS where it is read.
extern "C" void report_lost_mapping(int /*signal*/) {
  constexpr char kMessage[] =
      "error: a mapped data file or checkpoint was shortened or lost while it was read: restore it "
      "and start again\n";
  [[maybe_unused]] const auto written = ::write(STDERR_FILENO, kMessage, sizeof kMessage - 1);
  ::_exit(exit_code(Errc::io));
}

}  // namespace

Option Option::required() {
  option_->required();
  return *this;
}

Option Option::show_default() {
  option_->capture_default_str();
  return *this;
}

Option Option::choices(const std::vector<std::string>& values) {
  option_->check(CLI::IsMember(values));
  return *this;
}

Option Option::repeatable(const std::string& value_name) {
  option_->type_name(value_name)->expected(1)->allow_extra_args(false)->take_all();
  return *this;
}

Command::Command(const std::string& name, const std::string& description)
    : app_(std::make_unique<CLI::App>(description, name)) {
  flag("--quiet", quiet_, "Print nothing but errors");
  app_->set_version_flag("--version", version_report());
}

Command::~Command() = default;

void Command::flag(const std::string& name, bool& value, const std::string& help) {
  app_->add_flag(name, value, help);
}

template <class T>
Option Command::option(const std::string& name, T& value, const std::string& help) {
  return Option(app_->add_option(name, value, help));
}

template Option Command::option(const std::string&, std::string&, const std::string&);
template Option Command::option(const std::string&, double&, const std::string&);
template Option Command::option(const std::string&, int&, const std::string&);
template Option Command::option(const std::string&, std::int64_t&, const std::string&);
template Option Command::option(const std::string&, std::uint64_t&, const std::string&);
template Option Command::option(const std::string&, std::filesystem::path&, const std::string&);
template Option Command::option(const std::string&, std::vector<std::string>&, const std::string&);
template Option Command::option(const std::string&, std::vector<std::filesystem::path>&,
                                const std::string&);

int Command::run(int argc, char** argv, FunctionRef<int()> body) {
  open_standard_descriptors();
  std::signal(SIGBUS, report_lost_mapping);
  std::signal(SIGPIPE, SIG_IGN);  // a reader that leaves must not end a run
  try {
    app_->parse(argc, argv);
    const int code = body();
    if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0) {
      return report(Errc::io, "cannot write to standard output: it is closed or its disk is full");
    }
    return code;
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app_->exit(error);
    return report(Errc::invalid_argument,
                  std::string(error.what()) + "; see " + app_->get_name() + " --help");
  } catch (const Error& error) {
    return report(error.code(), error.what());
  } catch (const std::bad_alloc&) {
    return report(Errc::out_of_memory,
                  "out of memory outside the arena: use a smaller model or fewer micro-batches");
  } catch (const std::system_error& error) {
    return report(Errc::io, error.what());
  } catch (const std::exception& error) {
    return report(Errc::internal, error.what());
  }
}

}  // namespace engine::apps
