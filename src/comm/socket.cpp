#include "socket.hpp"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <system_error>
#include <thread>

#include "engine/core/error.hpp"

namespace engine::comm::detail {
namespace {

std::string errno_text() { return std::generic_category().message(errno); }

void set_option(const Socket& socket, int level, int option) {
  const int on = 1;
  ::setsockopt(socket.fd(), level, option, &on, sizeof on);
}

/// Waits until `events` are there; false when the time is up.
bool wait_for(const Socket& socket, short events, SteadyClock::time_point deadline) {
  for (;;) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline - SteadyClock::now());
    if (left.count() < 0) return false;
    pollfd p = {socket.fd(), events, 0};
    const int n = ::poll(&p, 1, static_cast<int>(std::min<std::int64_t>(left.count() + 1, 10000)));
    if (n > 0) return true;
    ENGINE_CHECK(n == 0 || errno == EINTR, Errc::io, "poll: {}", errno_text());
  }
}

struct FreeAddresses {
  void operator()(addrinfo* list) const { ::freeaddrinfo(list); }
};
using Addresses = std::unique_ptr<addrinfo, FreeAddresses>;

Addresses resolve(const char* host, int port, int flags) {
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags;
  addrinfo* list = nullptr;
  const int error = ::getaddrinfo(host, std::to_string(port).c_str(), &hints, &list);
  if (error != 0) return nullptr;
  return Addresses(list);
}

/// A connection that is established at once or within `deadline`; else an empty socket.
Socket try_connect(const addrinfo& address, SteadyClock::time_point deadline) {
  Socket socket(
      ::socket(address.ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, address.ai_protocol));
  if (!socket) return {};
  if (::connect(socket.fd(), address.ai_addr, address.ai_addrlen) != 0) {
    if (errno != EINPROGRESS || !wait_for(socket, POLLOUT, deadline)) return {};
    int error = 0;
    socklen_t size = sizeof error;
    ::getsockopt(socket.fd(), SOL_SOCKET, SO_ERROR, &error, &size);
    if (error != 0) return {};
  }
  set_option(socket, IPPROTO_TCP, TCP_NODELAY);
  return socket;
}

}  // namespace

Socket& Socket::operator=(Socket&& other) noexcept {
  reset();
  std::swap(fd_, other.fd_);
  return *this;
}

void Socket::reset() noexcept {
  if (fd_ >= 0) ::close(fd_);
  fd_ = -1;
}

Socket listen_on(int port) {
  for (const int family : {AF_INET6, AF_INET}) {  // the first serves both where there is IPv6
    const Addresses address =
        resolve(family == AF_INET6 ? "::" : "0.0.0.0", port, AI_PASSIVE | AI_NUMERICHOST);
    if (!address) continue;
    Socket socket(::socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!socket) continue;
    set_option(socket, SOL_SOCKET, SO_REUSEADDR);
    if (::bind(socket.fd(), address->ai_addr, address->ai_addrlen) != 0) {
      ENGINE_CHECK(errno != EADDRINUSE, Errc::invalid_argument,
                   "MASTER_PORT = {}: the port is in use on this host: choose another", port);
      continue;
    }
    if (::listen(socket.fd(), 1024) == 0) return socket;
  }
  ENGINE_FAIL(Errc::io, "cannot listen on port {}: {}", port, errno_text());
}

int port_of(const Socket& socket) {
  sockaddr_storage address = {};
  socklen_t size = sizeof address;
  ::getsockname(socket.fd(), reinterpret_cast<sockaddr*>(&address), &size);
  return ntohs(address.ss_family == AF_INET6
                   ? reinterpret_cast<const sockaddr_in6&>(address).sin6_port
                   : reinterpret_cast<const sockaddr_in&>(address).sin_port);
}

std::string local_address(const Socket& socket) {
  sockaddr_storage address = {};
  socklen_t size = sizeof address;
  char host[NI_MAXHOST] = {};
  ::getsockname(socket.fd(), reinterpret_cast<sockaddr*>(&address), &size);
  ::getnameinfo(reinterpret_cast<const sockaddr*>(&address), size, host, sizeof host, nullptr, 0,
                NI_NUMERICHOST);
  const std::string text = host;
  constexpr std::string_view kMapped = "::ffff:";
  return text.starts_with(kMapped) ? text.substr(kMapped.size()) : text;
}

Socket connect_to(const std::string& host, int port, SteadyClock::time_point deadline) {
  for (;;) {
    const Addresses addresses = resolve(host.c_str(), port, 0);
    for (const addrinfo* a = addresses.get(); a != nullptr; a = a->ai_next) {
      if (Socket socket = try_connect(*a, deadline)) return socket;
    }
    ENGINE_CHECK(SteadyClock::now() < deadline, Errc::timeout,
                 "rank 0 cannot be reached at {}:{}{}: is it started, and is MASTER_ADDR its host?",
                 host, port, addresses ? "" : " (no such host)");
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
}

std::string framed(std::string_view payload) {
  const std::uint32_t head[2] = {htonl(kMessageMark),
                                 htonl(static_cast<std::uint32_t>(payload.size()))};
  std::string message(reinterpret_cast<const char*>(head), sizeof head);
  return message.append(payload);
}

std::optional<std::string> take_message(std::string& received) {
  std::uint32_t head[2];
  if (received.size() < sizeof head) return std::nullopt;
  std::memcpy(head, received.data(), sizeof head);
  const std::size_t length = ntohl(head[1]);
  ENGINE_CHECK(ntohl(head[0]) == kMessageMark && length <= kLongestMessage, Errc::peer_lost,
               "what came over the store's port is not from this program");
  if (received.size() < sizeof head + length) return std::nullopt;
  std::string payload = received.substr(sizeof head, length);
  received.erase(0, sizeof head + length);
  return payload;
}

void send_message(const Socket& socket, std::string_view payload,
                  SteadyClock::time_point deadline) {
  const std::string message = framed(payload);
  std::string_view rest = message;
  while (!rest.empty()) {
    const ssize_t n = ::send(socket.fd(), rest.data(), rest.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n > 0) {
      rest.remove_prefix(static_cast<std::size_t>(n));
      continue;
    }
    const bool wait = errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR;
    ENGINE_CHECK(wait && wait_for(socket, POLLOUT, deadline), Errc::peer_lost,
                 "the connection is closed");
  }
}

std::string receive_message(const Socket& socket, std::string& buffer,
                            SteadyClock::time_point deadline) {
  for (;;) {
    if (std::optional<std::string> message = take_message(buffer)) return std::move(*message);
    char chunk[4096];
    const ssize_t n = ::recv(socket.fd(), chunk, sizeof chunk, MSG_DONTWAIT);
    if (n > 0) {
      buffer.append(chunk, static_cast<std::size_t>(n));
      continue;
    }
    const bool wait = n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR);
    ENGINE_CHECK(wait, Errc::peer_lost, "the connection is closed");
    ENGINE_CHECK(wait_for(socket, POLLIN, deadline), Errc::timeout, "no answer");
  }
}

MessageWriter& MessageWriter::add(std::int64_t value) {
  for (int shift = 0; shift < 64; shift += 8) {
    text_.push_back(static_cast<char>(static_cast<std::uint64_t>(value) >> shift & 0xffU));
  }
  return *this;
}

MessageWriter& MessageWriter::add(std::string_view text) {
  add(static_cast<std::int64_t>(text.size()));
  text_.append(text);
  return *this;
}

std::string_view MessageReader::take(std::size_t bytes) {
  ENGINE_CHECK(bytes <= rest_.size(), Errc::peer_lost, "a message of the store ends early");
  const std::string_view taken = rest_.substr(0, bytes);
  rest_.remove_prefix(bytes);
  return taken;
}

std::int64_t MessageReader::integer() {
  std::uint64_t value = 0;
  int shift = 0;
  for (const char c : take(8)) {
    value |= static_cast<std::uint64_t>(static_cast<unsigned char>(c)) << shift;
    shift += 8;
  }
  return static_cast<std::int64_t>(value);
}

std::string MessageReader::string() {
  const std::int64_t size = integer();
  ENGINE_CHECK(size >= 0, Errc::peer_lost, "a message of the store has a negative length");
  return std::string(take(static_cast<std::size_t>(size)));
}

}  // namespace engine::comm::detail
