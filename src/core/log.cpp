#include "engine/core/log.hpp"

#include <spdlog/sinks/ansicolor_sink.h>
#include <spdlog/sinks/base_sink.h>
#include <spdlog/sinks/null_sink.h>
#include <spdlog/spdlog.h>

namespace engine {
namespace {

spdlog::level::level_enum to_spdlog(LogLevel level) {
  switch (level) {
    case LogLevel::trace:
      return spdlog::level::trace;
    case LogLevel::debug:
      return spdlog::level::debug;
    case LogLevel::info:
      return spdlog::level::info;
    case LogLevel::warning:
      return spdlog::level::warn;
    case LogLevel::error:
      return spdlog::level::err;
    case LogLevel::off:
      break;
  }
  return spdlog::level::off;
}

}  // namespace

struct Logger::State {
  Options options;
  std::string prefix;
  std::shared_ptr<spdlog::logger> logger;
};

Logger::Logger() : Logger(Options{}) {}

Logger::Logger(const Options& options) : state_(std::make_shared<State>()) {
  state_->options = options;
  if (options.world_size > 1) {
    state_->prefix = fmt::format("[r{}/{}] ", options.rank, options.world_size);
  }
  auto sink = std::make_shared<spdlog::sinks::ansicolor_stderr_sink_mt>();
  state_->logger = std::make_shared<spdlog::logger>("engine", std::move(sink));
  state_->logger->set_level(to_spdlog(options.level));
  state_->logger->set_pattern("%^%v%$");
  state_->logger->flush_on(spdlog::level::trace);
}

bool Logger::enabled(LogLevel level) const noexcept {
  return level >= state_->options.level && state_->options.level != LogLevel::off;
}

void Logger::write(LogLevel level, std::string_view text) const {
  if (!enabled(level)) return;
  const std::string line =
      fmt::format("{}{}{}", state_->prefix, level == LogLevel::warning ? "warning: " : "", text);
  if (state_->options.sink) {
    state_->options.sink(level, line);
  } else {
    state_->logger->log(to_spdlog(level), "{}", line);
  }
}

}  // namespace engine
