#include "src/comm/store.hpp"

#include <sys/socket.h>

#include <random>

#include "tests/comm/conformance_support.hpp"

namespace engine::comm::detail {
namespace {

using comm::test::expect_error;

void pause_ms(int ms) { std::this_thread::sleep_for(std::chrono::milliseconds(ms)); }

SteadyClock::time_point soon() { return SteadyClock::now() + std::chrono::seconds(5); }

TEST(Store, KeysAreWaitedFor) {
  StoreServer server(0, 2, 60);
  StoreClient a("127.0.0.1", server.port(), 0, 2, 5);
  StoreClient b("127.0.0.1", server.port(), 1, 2, 5);
  const std::string binary("\0\xff nothing is text", 17);
  std::thread later([&] {
    pause_ms(100);
    a.set("key", binary);
  });
  EXPECT_EQ(b.get("key", 5), binary);
  EXPECT_EQ(a.get("key", 5), binary);
  later.join();
  expect_error(Errc::timeout, {}, [&] { b.get("never", 0.1); });
  a.leave(5);
  b.leave(5);
}

TEST(Store, TheFirstFailureIsToldToAll) {
  StoreServer server(0, 3, 60);
  std::vector<std::unique_ptr<StoreClient>> clients;
  for (int r = 0; r < 3; ++r) {
    clients.push_back(std::make_unique<StoreClient>("127.0.0.1", server.port(), r, 3, 5));
  }
  EXPECT_FALSE(clients[0]->beat({}, 5).failure.has_value());
  clients[2]->abort("the first reason", 5);
  clients[1]->abort("a later reason", 5);
  for (const auto& client : clients) {
    const auto failure = client->beat({}, 5).failure;
    ASSERT_TRUE(failure.has_value());
    EXPECT_EQ(failure->message, "rank 2 failed: the first reason");
  }
}

TEST(Store, AClosedConnectionIsADeadRank) {
  StoreServer server(0, 2, 60);
  StoreClient a("127.0.0.1", server.port(), 0, 2, 5);
  auto b = std::make_unique<StoreClient>("127.0.0.1", server.port(), 1, 2, 5);
  b.reset();
  pause_ms(300);
  const auto failure = a.beat({}, 5).failure;
  ASSERT_TRUE(failure.has_value());
  EXPECT_NE(failure->message.find("rank 1 is gone"), std::string::npos) << failure->message;
}

TEST(Store, ASilentRankIsNamed) {
  StoreServer server(0, 2, 0.5);
  StoreClient a("127.0.0.1", server.port(), 0, 2, 5);
  const StoreClient b("127.0.0.1", server.port(), 1, 2, 5);
  std::optional<WorldFailure> failure;
  for (int i = 0; i < 60 && !failure; ++i) {
    failure = a.beat({}, 5).failure;
    pause_ms(100);
  }
  ASSERT_TRUE(failure.has_value());
  EXPECT_NE(failure->message.find("rank 1 has not been heard of"), std::string::npos)
      << failure->message;
}

TEST(Store, AServerThatIsGoneIsRankZero) {
  auto server = std::make_unique<StoreServer>(0, 1, 60);
  StoreClient a("127.0.0.1", server->port(), 0, 1, 5);
  a.leave(5);
  server.reset();
  expect_error(Errc::peer_lost, {"rank 0 is gone"}, [&] { a.beat({}, 5); });
}

TEST(Store, DifferentCallsAreFoundByTheHeartbeats) {
  StoreServer server(0, 2, 60);
  StoreClient a("127.0.0.1", server.port(), 0, 2, 5);
  StoreClient b("127.0.0.1", server.port(), 1, 2, 5);
  EXPECT_FALSE(a.beat({{"data", 7, "all_gather"}}, 5).failure.has_value());
  EXPECT_FALSE(b.beat({{"data", 6, "barrier"}}, 5).failure.has_value());
  const auto failure = b.beat({{"data", 7, "barrier"}}, 5).failure;
  ASSERT_TRUE(failure.has_value());
  EXPECT_EQ(failure->message,
            "group data, collective #7: rank 0 called all_gather, rank 1 called barrier");
}

TEST(Store, OtherPeoplesConnectionsDoNoHarm) {
  StoreServer server(0, 2, 60);
  StoreClient a("127.0.0.1", server.port(), 0, 2, 5);
  std::mt19937 random(1);
  const std::string hello = MessageWriter().add(1).add(1).add(0).add(2).add(0).text();
  for (int i = 0; i < 200; ++i) {
    const Socket stray = connect_to("127.0.0.1", server.port(), soon());
    std::string bytes = i % 3 == 0 ? framed(hello) : "GET / HTTP/1.1\r\n\r\n";
    for (int k = 0; k < i % 40; ++k) bytes[random() % bytes.size()] = static_cast<char>(random());
    if (i % 3 == 2) bytes.resize(bytes.size() * (random() % 100) / 100);
    ::send(stray.fd(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
  }
  a.set("still", "here");
  EXPECT_EQ(a.get("still", 5), "here");
}

TEST(Store, HugeMessagesAreRefused) {
  std::string received = framed("x");
  received[4] = '\x7f';  // two gigabytes
  expect_error(Errc::peer_lost, {"not from this program"}, [&] { take_message(received); });
  expect_error(Errc::peer_lost, {"ends early"},
               [] { MessageReader(MessageWriter().add(1'000'000).text()).string(); });
  expect_error(Errc::peer_lost, {"negative"},
               [] { MessageReader(MessageWriter().add(-1).text()).string(); });
}

TEST(Store, WrongWorldSizesAndDoubledRanksAreRefused) {
  StoreServer server(0, 3, 60);
  StoreClient a("127.0.0.1", server.port(), 0, 3, 5);
  expect_error(Errc::invalid_argument, {"rank 1 of 4, rank 0 expects 3"},
               [&] { StoreClient("127.0.0.1", server.port(), 1, 4, 5); });
  expect_error(Errc::invalid_argument, {"two processes say they are rank 0"},
               [&] { StoreClient("127.0.0.1", server.port(), 0, 3, 5); });
  const auto failure = a.beat({}, 5).failure;
  ASSERT_TRUE(failure.has_value());
  EXPECT_EQ(failure->code, Errc::invalid_argument);
}

}  // namespace
}  // namespace engine::comm::detail
