// Bytes a rank holds between steps, against the ZeRO formulas.
#include <gtest/gtest.h>

#include "tests/support/layouts.hpp"

namespace engine::train {
namespace {

using test::Fixture;
using test::Layout;

struct Held {
  std::int64_t parameters, gradients, optimizer;
  bool operator==(const Held&) const = default;
};

/// The formula over padded sizes: whole flat buffers and shards of all units.
Held expected(std::span<const parallel::Unit> units, int stage, DType compute) {
  std::int64_t whole = 0;
  std::int64_t shard = 0;
  for (const parallel::Unit& unit : units) {
    whole += unit.layout().total_numel();
    shard += unit.layout().shard_numel();
  }
  const auto from = [&](int sharded_from) { return stage >= sharded_from ? shard : whole; };
  Held h = {4 * from(3), 4 * from(2), 8 * from(1)};
  if (compute == DType::bf16) h.parameters = 2 * from(3) + 4 * from(1);
  return h;
}

TEST(Memory, BytesHeldAreTheZeroFormula) {
  const Fixture fixture("gpt2_tiny");
  for (const DType compute : {DType::f32, DType::bf16}) {
    for (const int data : {2, 3, 4, 6}) {
      for (int stage = 0; stage <= 3; ++stage) {
        const Layout layout = {.data = data, .zero_stage = stage, .micro = 1, .prefetch_units = 0};
        test::on_ranks(layout.mesh(), [&](parallel::RankContext& rank) {
          SessionOptions options = fixture.options("adamw");
          options.compute = compute;
          Session session(rank, nn::make_model(fixture.model().config()), layout.apply(options));
          for (int s = 0; s < 3; ++s) session.step(fixture.batches(session, s, 1), 1e-3);
          const MemoryStats stats = rank.device().memory().stats();
          const auto now = [&](Category c) {
            return stats.categories[static_cast<std::size_t>(c)].now_bytes;
          };
          const Held held = {now(Category::parameters), now(Category::gradients),
                             now(Category::optimizer)};
          EXPECT_EQ(held, expected(session.units(), stage, compute)) << layout.str();
          EXPECT_EQ(now(Category::communication), 0) << layout.str();

          // Padding: at most an alignment for each parameter and each shard of a unit.
          std::int64_t padding = 0;
          std::int64_t most = 0;
          for (const parallel::Unit& unit : session.units()) {
            padding += unit.layout().total_numel() - unit.numel();
            most += parallel::ShardLayout::kAlignment * (unit.layout().entries() + data);
          }
          EXPECT_LE(padding, most) << layout.str();
        });
      }
    }
  }
}

TEST(Memory, DoesNotGrowFromStepToStep) {
  const Fixture fixture("llama_tiny");
  for (int stage = 0; stage <= 3; ++stage) {
    const Layout layout = {.data = 4, .zero_stage = stage, .micro = 1};
    test::on_ranks(layout.mesh(), [&](parallel::RankContext& rank) {
      Session session(rank, nn::make_model(fixture.model().config()),
                      layout.apply(fixture.options("adamw")));
      MemoryStats early;
      for (int s = 0; s < 40; ++s) {
        session.step(fixture.batches(session, s % fixture.steps, 1), 1e-3);
        if (s == 9) early = rank.device().memory().stats();
      }
      const MemoryStats late = rank.device().memory().stats();
      EXPECT_EQ(late.committed_bytes, early.committed_bytes) << layout.str();
      EXPECT_EQ(late.total.peak_bytes, early.total.peak_bytes) << layout.str();
      EXPECT_EQ(late.total.now_bytes, early.total.now_bytes) << layout.str();
    });
  }
}

/// What the planner predicts on the meta device is what a rank takes, but for rounded-up blocks.
TEST(Memory, PredictedPeakIsTheMeasuredPeak) {
  const Fixture fixture("gpt2_tiny");
  for (int stage = 0; stage <= 3; ++stage) {
    const Layout layout = {.data = 3, .zero_stage = stage, .micro = 2};
    const auto train = [&](parallel::RankContext& rank) {
      Session session(rank, nn::make_model(fixture.model().config()),
                      layout.apply(fixture.options("adamw")));
      std::vector<nn::MicroBatch> micros;
      if (rank.device().device().is_meta()) {
        for (int m = 0; m < 2; ++m) micros.push_back(session.make_batch(2, fixture.T));
      } else {
        micros = fixture.batches(session, 0, 2);
      }
      for (int s = 0; s < 2; ++s) session.step(micros, 1e-3);
      return rank.device().memory().stats().total.peak_bytes;
    };
    const auto world = comm::make_meta_world(0, 3);
    parallel::RankContext::Options options = test::rank_options(1);
    options.mesh = layout.mesh();
    options.device.device.type = DeviceType::meta;
    parallel::RankContext planned(options, *world);
    const std::int64_t predicted = train(planned);
    test::on_ranks(layout.mesh(), [&](parallel::RankContext& rank) {
      const auto measured = static_cast<double>(train(rank));
      EXPECT_NEAR(measured, static_cast<double>(predicted), 1e-3 * measured) << layout.str();
    });
  }
}

}  // namespace
}  // namespace engine::train
