#pragma once
// TCP sockets and length-prefixed messages, for the store.
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace engine::comm::detail {

using SteadyClock = std::chrono::steady_clock;

/// A file descriptor, closed with its owner.
class Socket {
 public:
  Socket() = default;
  explicit Socket(int fd) : fd_(fd) {}
  ~Socket() { reset(); }
  Socket(Socket&& other) noexcept : fd_(other.fd_) { other.fd_ = -1; }
  Socket& operator=(Socket&& other) noexcept;
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;

  int fd() const noexcept { return fd_; }
  explicit operator bool() const noexcept { return fd_ >= 0; }
  void reset() noexcept;

 private:
  int fd_ = -1;
};

/// Listens on a port of all addresses; 0 takes a free one. Throws Errc::invalid_argument naming the
/// port if it is taken, Errc::io otherwise.
Socket listen_on(int port);
int port_of(const Socket& socket);
/// Numeric address of this end of a connection.
std::string local_address(const Socket& socket);
/// Tries again until the deadline. Throws Errc::timeout naming host and port.
Socket connect_to(const std::string& host, int port, SteadyClock::time_point deadline);

/// Every message starts with a mark that no other program's message has, and its length.
constexpr std::uint32_t kMessageMark = 0x656e6731;  // "eng1"
constexpr std::size_t kLongestMessage = 1 << 20;

std::string framed(std::string_view payload);
/// The first whole message of `received`, taken off its front; nothing if it is not whole yet.
/// Throws Errc::peer_lost if what came is no message of ours.
std::optional<std::string> take_message(std::string& received);

/// Sends a message whole. Throws Errc::peer_lost when the other end is gone or the time is up.
void send_message(const Socket& socket, std::string_view payload, SteadyClock::time_point deadline);
/// Receives one. Throws Errc::peer_lost when the other end is gone, Errc::timeout when it is late.
std::string receive_message(const Socket& socket, std::string& buffer,
                            SteadyClock::time_point deadline);

/// Values in a message: integers and strings one after another.
class MessageWriter {
 public:
  MessageWriter& add(std::int64_t value);
  MessageWriter& add(std::string_view text);
  const std::string& text() const noexcept { return text_; }

 private:
  std::string text_;
};

/// Throws Errc::peer_lost when the message ends early.
class MessageReader {
 public:
  explicit MessageReader(std::string_view text) : rest_(text) {}
  std::int64_t integer();
  std::string string();
  bool at_end() const noexcept { return rest_.empty(); }

 private:
  std::string_view take(std::size_t bytes);
  std::string_view rest_;
};

}  // namespace engine::comm::detail
