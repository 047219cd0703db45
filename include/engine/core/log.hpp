#pragma once
#include <fmt/core.h>

#include <functional>
#include <memory>
#include <string>
#include <string_view>

namespace engine {

enum class LogLevel : int { trace, debug, info, warning, error, off };

/// A rank's log. Lines go to stderr with a rank prefix ("[r2/4]", left out for a single rank).
/// Cheap to copy; copies share the sink.
class Logger {
 public:
  /// Receives finished lines; for tests and embedders.
  using Sink = std::function<void(LogLevel, std::string_view line)>;

  struct Options {
    LogLevel level = LogLevel::info;
    int rank = 0;
    int world_size = 1;
    Sink sink = {};  ///< instead of stderr
  };

  Logger();
  explicit Logger(const Options& options);

  bool enabled(LogLevel level) const noexcept;
  void write(LogLevel level, std::string_view text) const;

  template <class... Args>
  void info(fmt::format_string<Args...> text, Args&&... args) const {
    format(LogLevel::info, text, std::forward<Args>(args)...);
  }
  template <class... Args>
  void warning(fmt::format_string<Args...> text, Args&&... args) const {
    format(LogLevel::warning, text, std::forward<Args>(args)...);
  }
  template <class... Args>
  void debug(fmt::format_string<Args...> text, Args&&... args) const {
    format(LogLevel::debug, text, std::forward<Args>(args)...);
  }

 private:
  template <class... Args>
  void format(LogLevel level, fmt::format_string<Args...> text, Args&&... args) const {
    if (enabled(level)) write(level, fmt::format(text, std::forward<Args>(args)...));
  }

  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace engine
