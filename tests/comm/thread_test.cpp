// The in-process backend: the conformance suites, and what its messages say.
#include <sys/resource.h>

#include "engine/comm/world.hpp"
#include "tests/comm/conformance.hpp"
#include "tests/comm/conformance_failures.hpp"

namespace engine::comm::test {
namespace {

struct ThreadBackend {
  static void run(int ranks, const Timeouts& timeouts, const std::function<void(World&)>& body) {
    spawn_ranks(ranks, timeouts, body);
  }
  static std::vector<int> sizes() { return {1, 2, 3, 4, 5, 6, 7, 8}; }
};

INSTANTIATE_TYPED_TEST_SUITE_P(Thread, CommOperations, ThreadBackend);
INSTANTIATE_TYPED_TEST_SUITE_P(Thread, CommGroups, ThreadBackend);
INSTANTIATE_TYPED_TEST_SUITE_P(Thread, CommFailures, ThreadBackend);

double cpu_seconds() {
  rusage usage = {};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) * 1e-6;
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

TEST(ThreadWorld, WaitingRanksBurnNoCpu) {
  double before = 0;
  double after = 0;
  spawn_ranks(8, patient(), [&](World& world) {
    Lane lane;
    Lane messages("messages");
    const auto comm = everyone(world, lane);
    const auto pipe = everyone(world, messages, "pipe");
    comm->barrier().wait();
    Work message;
    if (world.rank() == 0) {
      before = cpu_seconds();
      sleep_ms(1000);
      after = cpu_seconds();
      for (int to = 1; to < 8; ++to) pipe->send(values<float>(0, 9), to);
    } else {
      message = pipe->recv(empty<float>(9), 0);
    }
    comm->all_reduce(values<float>(world.rank(), 1000)).wait();
    message.wait();
  });
  EXPECT_LT(after - before, 0.05);
}

TEST(ThreadWorld, TimeoutSaysWhatIsLateAndWhereItWasSeen) {
  spawn_ranks(4, {.collective_s = 0.2}, [](World& world) {
    Lane lane;
    if (world.rank() == 3) return sleep_ms(900);
    const auto comm = world.group("data", {2, 1, 0}, lane);
    comm->barrier().wait();
    if (world.rank() != 2) sleep_ms(600);
    expect_error(Errc::timeout,
                 {"ranks 1, 0 have not entered all_gather #2 of group data for 0.2 s (last seen in "
                  "barrier #1, barrier #1)"},
                 [&] { comm->all_gather(values<float>(0, 5), empty<float>(15)).wait(); });
  });
}

TEST(ThreadWorld, MismatchNamesBothCalls) {
  spawn_ranks(3, patient(), [](World& world) {
    Lane lane;
    const auto comm = everyone(world, lane, "mixed");
    comm->barrier().wait();
    expect_error(Errc::internal,
                 {"group mixed, collective #2: rank 0 called all_reduce of f32 x 64 (sum), rank 1 "
                  "called all_reduce of f32 x 64 (max)"},
                 [&] {
                   comm->all_reduce(values<float>(0, 64),
                                    world.rank() == 1 ? ReduceOp::max : ReduceOp::sum)
                       .wait();
                 });
    if (world.rank() == 2) return sleep_ms(100);
    Lane other;
    const auto again = world.group("twice", {0, 1}, other);
    expect_error(Errc::internal,
                 {"group twice, message #1 from rank 0 to rank 1: send of f32 x 5, but recv of f32 "
                  "x 6"},
                 [&] {
                   if (world.rank() == 0) again->send(values<float>(0, 5), 1).wait();
                   if (world.rank() == 1) again->recv(empty<float>(6), 0).wait();
                 });
    sleep_ms(100);
  });
}

TEST(ThreadWorld, AGroupMayBeMadeAgain) {
  spawn_ranks(3, patient(), [](World& world) {
    for (int round = 0; round < 20; ++round) {
      Lane lane;
      const auto comm = everyone(world, lane);
      EXPECT_EQ(exchange_sum(*comm, world.rank() + round), 3 + 3 * round);
    }
  });
}

TEST(ThreadWorld, LargeCopiesOfAnyAlignmentAreWhole) {
  spawn_ranks(2, patient(), [](World& world) {
    Lane lane;
    const auto comm = everyone(world, lane);
    for (const std::int64_t n : {(4 << 20) - 1, 4 << 20, (4 << 20) + 65, 5'000'001}) {
      const auto expected = [&](auto i) {
        return static_cast<std::uint8_t>(7 * (i % n) + i / n + (i >> 10));
      };
      const Tensor whole = empty<std::uint8_t>(2 * n);
      const Tensor part = empty<std::uint8_t>(n);
      for (std::int64_t i = 0; i < n; ++i) {
        part.data<std::uint8_t>()[i] = expected(world.rank() * n + i);
      }
      comm->all_gather(part, whole).wait();
      EXPECT_EQ(0, wrong<std::uint8_t>(whole, expected)) << n;
    }
  });
}

TEST(ThreadWorld, ARankThatAbortedBeforeItThrewIsReported) {
  EXPECT_THROW(spawn_ranks(3, patient(),
                           [](World& world) {
                             Lane lane;
                             const auto comm = everyone(world, lane);
                             if (world.rank() != 2) return comm->barrier().wait();
                             world.abort("told early");
                             sleep_ms(200);
                             throw std::domain_error("thrown late");
                           }),
               std::domain_error);
}

}  // namespace
}  // namespace engine::comm::test
