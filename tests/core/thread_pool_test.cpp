#include "engine/core/thread_pool.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <vector>

#include "engine/core/error.hpp"

namespace engine {
namespace {

TEST(ThreadPool, EveryTaskRunsExactlyOnce) {
  for (const int threads : {1, 2, 3, 8}) {
    ThreadPool pool(threads);
    for (int round = 0; round < 300; ++round) {
      std::vector<std::atomic<int>> hits(static_cast<std::size_t>(1 + round % 37));
      pool.parallel_for(static_cast<std::int64_t>(hits.size()),
                        [&](std::int64_t i) { ++hits[static_cast<std::size_t>(i)]; });
      for (const auto& hit : hits) ASSERT_EQ(hit.load(), 1);
    }
  }
}

TEST(ThreadPool, AThrowingTaskReachesTheCallerAndThePoolSurvives) {
  ThreadPool pool(3);
  EXPECT_THROW(pool.parallel_for(10,
                                 [](std::int64_t i) {
                                   if (i == 4) ENGINE_FAIL(Errc::internal, "task {}", i);
                                 }),
               Error);
  std::atomic<int> sum{0};
  pool.parallel_for(10, [&](std::int64_t i) { sum += static_cast<int>(i); });
  EXPECT_EQ(sum.load(), 45);
}

TEST(ThreadPool, RefusesNonsense) { EXPECT_THROW(ThreadPool(0), Error); }

}  // namespace
}  // namespace engine
