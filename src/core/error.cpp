#include "engine/core/error.hpp"

namespace engine {

std::string_view name(Errc code) noexcept {
  switch (code) {
    case Errc::internal:
      return "internal";
    case Errc::invalid_argument:
      return "invalid_argument";
    case Errc::corrupt_data:
      return "corrupt_data";
    case Errc::io:
      return "io";
    case Errc::peer_lost:
      return "peer_lost";
    case Errc::timeout:
      return "timeout";
    case Errc::diverged:
      return "diverged";
    case Errc::out_of_memory:
      return "out_of_memory";
  }
  return "unknown";
}

int exit_code(Errc code) noexcept {
  switch (code) {
    case Errc::internal:
      return 1;
    case Errc::invalid_argument:
    case Errc::out_of_memory:
      return 2;
    case Errc::corrupt_data:
    case Errc::io:
      return 3;
    case Errc::peer_lost:
    case Errc::timeout:
      return 4;
    case Errc::diverged:
      return 5;
  }
  return 1;
}

Error::Error(Errc code, const std::string& message, std::source_location where)
    : std::runtime_error(message), code_(code), where_(where) {}

namespace detail {

void raise(Errc code, std::source_location where, const std::string& message) {
  throw Error(code, message, where);
}

void raise_assertion(std::source_location where, const char* condition,
                     const std::string& message) {
  throw Error(Errc::internal,
              fmt::format("invariant does not hold: {} [{}] at {}:{}", message, condition,
                          where.file_name(), where.line()),
              where);
}

}  // namespace detail
}  // namespace engine
