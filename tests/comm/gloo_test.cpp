// Ranks over TCP: the conformance suites, and what the failure messages say. Ranks are threads with
// a connection each; tests/kill_ranks.py does the same with processes.
#include <gtest/gtest.h>

#include "engine/comm/launch.hpp"
#include "tests/comm/conformance.hpp"
#include "tests/comm/conformance_failures.hpp"

namespace engine::comm::test {
namespace {

void run_over_tcp(int ranks, const Timeouts& timeouts, const std::function<void(World&)>& body) {
  const LaunchInfo launch = local_launch(ranks);
  spawn_ranks(
      ranks,
      [&](int rank) {
        LaunchInfo own = launch;
        own.rank = rank;
        return join_processes(own, timeouts);
      },
      body);
}

struct GlooBackend {
  static void run(int ranks, const Timeouts& timeouts, const std::function<void(World&)>& body) {
    run_over_tcp(ranks, timeouts, body);
  }
  static std::vector<int> sizes() { return {1, 2, 3, 5, 8}; }
};

INSTANTIATE_TYPED_TEST_SUITE_P(Gloo, CommOperations, GlooBackend);
INSTANTIATE_TYPED_TEST_SUITE_P(Gloo, CommGroups, GlooBackend);
INSTANTIATE_TYPED_TEST_SUITE_P(Gloo, CommFailures, GlooBackend);

TEST(GlooWorld, LargeReductionsComeInChunksAndAddInRankOrder) {
  run_over_tcp(3, patient(), [](World& world) {
    Lane lane;
    const auto comm = everyone(world, lane);
    constexpr std::int64_t kCount = 1'500'001;  // some chunks for each rank, unevenly
    const Tensor data = values<float>(world.rank(), kCount);
    comm->all_reduce(data).wait();
    EXPECT_EQ(wrong<float>(data, [](auto i) { return reduced<float>(3, i, ReduceOp::sum); }), 0);
  });
}

TEST(GlooWorld, AMissingRankIsNamed) {
  LaunchInfo launch = local_launch(3);
  std::string messages[2];
  std::vector<std::thread> ranks;
  for (const int rank : {0, 2}) {
    ranks.emplace_back([&, rank] {
      LaunchInfo own = launch;
      own.rank = rank;
      try {
        join_processes(own, {.collective_s = 1, .startup_s = 1});
      } catch (const Error& error) {
        messages[rank / 2] = error.what();
      }
    });
  }
  for (std::thread& t : ranks) t.join();
  for (const std::string& message : messages) {
    EXPECT_NE(message.find("rank 1 of 3 did not appear"), std::string::npos) << message;
  }
}

TEST(GlooWorld, WrongWorldSizesAndRanksAreRefusedOnBothSides) {
  const auto try_second = [](int rank, int size) {
    const LaunchInfo launch = local_launch(2);
    std::string messages[2];
    std::thread first([&] {
      expect_error(Errc::invalid_argument, {}, [&] {
        const auto world = join_processes(launch, {.collective_s = 5, .startup_s = 5});
        Lane lane;
        for (;;) {
          everyone(*world, lane, "all")->barrier().wait();
          sleep_ms(50);
        }
      });
    });
    LaunchInfo other = launch;
    other.rank = rank;
    other.world_size = size;
    try {
      join_processes(other, {.collective_s = 5, .startup_s = 5});
    } catch (const Error& error) {
      messages[1] = error.what();
    }
    first.join();
    return messages[1];
  };
  EXPECT_NE(try_second(1, 3).find("rank 1 of 3, rank 0 expects 2"), std::string::npos);
}

TEST(GlooWorld, APortInUseIsNamed) {
  const LaunchInfo launch = local_launch(2);
  std::thread first(
      [&] { EXPECT_THROW(join_processes(launch, {.collective_s = 1, .startup_s = 1}), Error); });
  sleep_ms(300);
  expect_error(Errc::invalid_argument, {"MASTER_PORT", "in use"},
               [&] { join_processes(launch, {.collective_s = 1, .startup_s = 1}); });
  first.join();
}

}  // namespace
}  // namespace engine::comm::test
