#pragma once
// One exception type for the whole engine, with a code that decides the exit status of a command.
#include <fmt/core.h>

#include <cstdint>
#include <source_location>
#include <stdexcept>
#include <string>

namespace engine {

/// What kind of failure an `Error` reports; see `exit_code`.
enum class Errc : std::uint8_t {
  internal,          ///< a bug of the engine: an invariant does not hold
  invalid_argument,  ///< bad config, arguments or other user input
  corrupt_data,      ///< unreadable or inconsistent data file or checkpoint
  io,                ///< the system refused a read or write (missing file, disk full)
  peer_lost,         ///< another rank died or aborted
  timeout,           ///< a collective did not finish in time
  diverged,          ///< training produced non-finite values too often
  out_of_memory,     ///< the arena cannot serve a request
};

/// Short name, for example "corrupt_data".
std::string_view name(Errc code) noexcept;

/// Process exit status: 1 internal, 2 user input, 3 data and I/O, 4 peers and timeouts, 5 diverged.
int exit_code(Errc code) noexcept;

/// The exception of the engine. `what()` is one line: what, where, expected and got, what to do.
class Error : public std::runtime_error {
 public:
  Error(Errc code, const std::string& message,
        std::source_location where = std::source_location::current());

  Errc code() const noexcept { return code_; }
  const std::source_location& where() const noexcept { return where_; }

 private:
  Errc code_;
  std::source_location where_;
};

namespace detail {
[[noreturn]] void raise(Errc code, std::source_location where, const std::string& message);
[[noreturn]] void raise_assertion(std::source_location where, const char* condition,
                                  const std::string& message);
}  // namespace detail

}  // namespace engine

/// Throws `engine::Error` with a formatted message: ENGINE_FAIL(Errc::io, "cannot open {}", path).
#define ENGINE_FAIL(code, ...)                                             \
  ::engine::detail::raise(::engine::code, std::source_location::current(), \
                          ::fmt::format(__VA_ARGS__))

/// Checks what a user can cause; always on. The message names expected and got.
#define ENGINE_CHECK(condition, code, ...) \
  do {                                     \
    if (!(condition)) [[unlikely]] {       \
      ENGINE_FAIL(code, __VA_ARGS__);      \
    }                                      \
  } while (false)

/// Checks an invariant of the engine; always on, so keep it cheap.
#define ENGINE_ASSERT(condition, ...)                                                \
  do {                                                                               \
    if (!(condition)) [[unlikely]] {                                                 \
      ::engine::detail::raise_assertion(std::source_location::current(), #condition, \
                                        ::fmt::format(__VA_ARGS__));                 \
    }                                                                                \
  } while (false)
