// Emulated links: what takes how long. Times are bounded from below by the emulation and, in the
// best of a few tries, from above: the machine may be busy.
#include <algorithm>
#include <mutex>

#include "tests/comm/conformance.hpp"
#include "tests/comm/conformance_failures.hpp"

namespace engine::comm::test {
namespace {

struct EmulatedBackend {
  static void run(int ranks, const Timeouts& timeouts, const std::function<void(World&)>& body) {
    spawn_ranks(ranks, timeouts, body, {.latency_us = 20, .bandwidth_gbps = 100});
  }
  static std::vector<int> sizes() { return {1, 3}; }
};

INSTANTIATE_TYPED_TEST_SUITE_P(Emulated, CommOperations, EmulatedBackend);
INSTANTIATE_TYPED_TEST_SUITE_P(Emulated, CommGroups, EmulatedBackend);
INSTANTIATE_TYPED_TEST_SUITE_P(Emulated, CommFailures, EmulatedBackend);

constexpr LinkEmulation kSlow = {.latency_us = 2000, .bandwidth_gbps = 0.1};  // 12.5 KB a ms

/// A busy machine wakes threads late.
constexpr double latest_ms(double expected) { return 1.3 * expected + 6; }

/// Runs `body` on `ranks` ranks until the times it returns are at most latest_ms, at most 8 times.
/// They must never be shorter than `expected`.
void expect_ms(int ranks, double expected, const std::function<double(World&)>& body) {
  double best = 1e9;
  for (int attempt = 0; attempt < 8 && best > latest_ms(expected); ++attempt) {
    double longest = 0;
    std::mutex mutex;
    const auto timed = [&](World& world) {
      const double ms = body(world);
      const std::scoped_lock lock(mutex);
      longest = std::max(longest, ms);
    };
    spawn_ranks(ranks, patient(), timed, kSlow);
    EXPECT_GE(longest, expected - 0.1);
    best = std::min(best, longest);
  }
  EXPECT_LE(best, latest_ms(expected));
}

/// Milliseconds from when all ranks are there until `call`'s work is complete.
template <class Call>
double measure_ms(World& world, const Call& call) {
  Lane lane;
  const auto comm = everyone(world, lane);
  comm->barrier().wait();
  const Stopwatch watch;
  call(*comm).wait();
  return watch.seconds() * 1e3;
}

TEST(Emulation, MillisecondsAreLatencyAndTransfer) {
  const LinkEmulation link = {.latency_us = 50, .bandwidth_gbps = 10};
  EXPECT_DOUBLE_EQ(link.milliseconds(1'250'000), 1.05);
  EXPECT_DOUBLE_EQ(link.milliseconds(1'250'000, 4), 1.2);
  EXPECT_DOUBLE_EQ((LinkEmulation{.latency_us = 50}).milliseconds(1 << 30, 2), 0.1);
  EXPECT_FALSE(LinkEmulation{}.active());
}

TEST(Emulation, CollectivesTakeTheTimeOfTheirRing) {
  expect_ms(4, 6 * 2 + 6, [](World& world) {  // 50 KB
    return measure_ms(world, [](auto& c) { return c.all_reduce(empty<float>(12500)); });
  });
  expect_ms(4, 3 * 2 + 3, [](World& world) {
    return measure_ms(
        world, [](auto& c) { return c.all_gather(empty<float>(3125), empty<float>(12500)); });
  });
  expect_ms(4, 3 * 2 + 3, [](World& world) {
    return measure_ms(
        world, [](auto& c) { return c.reduce_scatter(empty<float>(12500), empty<float>(3125)); });
  });
  expect_ms(4, 3 * 2 + 3, [](World& world) {
    return measure_ms(
        world, [](auto& c) { return c.all_to_all(empty<float>(12500), empty<float>(12500)); });
  });
  expect_ms(4, 2 * 2 + 4, [](World& world) {
    return measure_ms(world, [](auto& c) { return c.broadcast(empty<float>(12500), 1); });
  });
}

TEST(Emulation, ControlTakesTheLatencyOfATree) {
  expect_ms(4, 2 * 2, [](World& w) { return measure_ms(w, [](auto& c) { return c.barrier(); }); });
  expect_ms(3, 2 * 2, [](World& world) {
    return measure_ms(world,
                      [](auto& c) { return c.all_gather(empty<float>(1), empty<float>(3)); });
  });
}

TEST(Emulation, MessagesArriveAfterLatencyAndTransfer) {
  expect_ms(2, 2 + 4, [](World& world) {
    return measure_ms(world, [&](auto& c) {
      return world.rank() == 0 ? c.send(empty<float>(12500), 1) : c.recv(empty<float>(12500), 0);
    });
  });
}

TEST(Emulation, ACollectiveBeginsWhenTheLastMemberComes) {
  expect_ms(2, 10 + 2 * 2 + 4, [](World& world) {
    return measure_ms(world, [&](auto& c) {
      if (world.rank() == 1) sleep_ms(10);
      return c.all_reduce(empty<float>(12500));
    });
  });
}

TEST(Emulation, ALinkCarriesOneMessageAtATime) {
  expect_ms(2, 2 * (2 + 8), [](World& world) {
    Lane a("a");
    Lane b("b");
    const auto first = everyone(world, a, "first");
    const auto second = everyone(world, b, "second");
    return measure_ms(world, [&](Communicator&) {
      const auto pass = [&](Communicator& comm) {
        return world.rank() == 0 ? comm.send(empty<float>(25000), 1)
                                 : comm.recv(empty<float>(25000), 0);
      };
      const Work work = pass(*first);
      pass(*second).wait();
      return work;
    });
  });
}

TEST(Emulation, ControlDoesNotQueueBehindBulkTransfers) {
  expect_ms(2, 2, [](World& world) {
    Lane a("a");
    Lane b("b");
    const auto bulk = everyone(world, a, "bulk");
    const auto control = everyone(world, b, "control");
    const Work work = bulk->all_reduce(empty<float>(250000));  // 84 ms
    const double ms = measure_ms(world, [&](Communicator&) { return control->barrier(); });
    EXPECT_FALSE(work.done());
    return ms;
  });
}

TEST(Emulation, TheSenderComputesOn) {
  const auto body = [](World& world) {
    Lane lane("comm");
    const auto comm = everyone(world, lane);
    const Stopwatch watch;
    const Work work = comm->all_reduce(empty<float>(125000));
    EXPECT_FALSE(work.done());
    EXPECT_LT(watch.seconds(), 0.040);
    work.wait();
    EXPECT_GE(watch.seconds(), 0.0439);
  };
  spawn_ranks(2, patient(), body, kSlow);
}

TEST(Emulation, AnAbortEndsATransferUnderWay) {
  const auto body = [](World& world) {
    Lane lane("comm");
    const auto comm = everyone(world, lane);
    const Stopwatch watch;
    const Work work = comm->all_reduce(empty<float>(125000));  // 4 s
    sleep_ms(50);
    if (world.rank() == 1) world.abort("changed its mind");
    expect_error(Errc::peer_lost, {"rank 1 failed: changed its mind"}, [&] { work.wait(); });
    EXPECT_LT(watch.seconds(), 1);
  };
  spawn_ranks(2, patient(), body, {.latency_us = 0, .bandwidth_gbps = 0.001});
}

}  // namespace
}  // namespace engine::comm::test
