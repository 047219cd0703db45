#include "command.hpp"

#include <CLI/CLI.hpp>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <new>

#include "engine/core/version.hpp"

namespace engine::apps {

namespace {

int report(Errc code, std::string message) {
  for (char& c : message) {
    if (c == '\n' || c == '\r') c = ' ';
  }
  std::fflush(stdout);
  fmt::print(stderr, "error: {}\n", message);
  return exit_code(code);
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
  try {
    app_->parse(argc, argv);
    return body();
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app_->exit(error);
    return report(Errc::invalid_argument,
                  std::string(error.what()) + "; see " + app_->get_name() + " --help");
  } catch (const Error& error) {
    return report(error.code(), error.what());
  } catch (const std::bad_alloc&) {
    return report(Errc::out_of_memory, "out of memory");
  } catch (const std::exception& error) {
    return report(Errc::internal, error.what());
  }
}

}  // namespace engine::apps
