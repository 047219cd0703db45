#pragma once
// Layouts of a run, and running a fixture at one of them on rank threads.
#include <fmt/format.h>

#include <map>
#include <mutex>

#include "engine/comm/world.hpp"
#include "tests/support/fixture.hpp"

namespace engine::test {

struct Layout {
  int data = 1;
  int replicate = 1;
  int zero_stage = 0;
  std::int64_t micro = 1;
  program::Every gather = program::Every::micro;
  program::Every reduce = program::Every::micro;
  int prefetch_units = 1;
  program::Recompute recompute = program::Recompute::none;

  std::string str() const {
    return fmt::format(
        "data={},replicate={},zero_stage={},micro={},gather={},reduce={},prefetch={},recompute={}",
        data, replicate, zero_stage, micro, gather == program::Every::micro ? "micro" : "step",
        reduce == program::Every::micro ? "micro" : "step", prefetch_units,
        recompute == program::Recompute::full ? "full" : "none");
  }

  parallel::MeshShape mesh() const { return {data, replicate, 1, 1}; }
  train::SessionOptions apply(train::SessionOptions options) const {
    options.zero_stage = zero_stage;
    options.gather = gather;
    options.reduce = reduce;
    options.prefetch_units = prefetch_units;
    options.recompute = recompute;
    return options;
  }
};

/// Runs `body(rank)` on every rank of a mesh, one compute thread each.
template <class Body>
void on_ranks(const parallel::MeshShape& mesh, Body&& body, std::uint64_t seed = 1) {
  comm::spawn_ranks(mesh.size(), {60, 60}, [&](comm::World& world) {
    parallel::RankContext::Options options = rank_options(1, seed);
    options.mesh = mesh;
    parallel::RankContext rank(options, world);
    body(rank);
  });
}

/// What a run came to: each step's result, and all parameters by name (whole).
struct RunRecord {
  std::vector<train::StepResult> steps;
  std::map<std::string, std::vector<float>> weights;
};

/// All parameters of a session, whole. Collective.
inline std::map<std::string, std::vector<float>> whole_weights(train::Session& session) {
  std::map<std::string, std::vector<float>> weights;
  for (const parallel::Unit& unit : session.units()) {
    const Tensor whole = unit.whole(unit.master(), session.rank().shard_group());
    for (int i = 0; i < unit.layout().entries(); ++i) {
      const auto values = unit.part(whole, i).span<float>();
      weights[unit.parameters()[static_cast<std::size_t>(i)]->name()] = {values.begin(),
                                                                         values.end()};
    }
  }
  return weights;
}

struct RunChoices {
  std::int64_t steps = 0;  ///< 0: all of the fixture
  double dropout = 0;
  bool random_weights = false;  ///< else the fixture's
};

/// Trains a fixture. Every rank must report the same; rank 0's record is returned.
inline RunRecord run_layout(const Fixture& fixture, const std::string& schedule_of,
                            const train::SessionOptions& options, const Layout& layout,
                            const RunChoices& choices = {}) {
  RunRecord record;
  std::mutex mutex;
  std::map<int, std::vector<train::StepResult>> by_rank;
  on_ranks(layout.mesh(), [&](parallel::RankContext& rank) {
    nn::ModelConfig config = fixture.model().config();
    config.dropout = choices.dropout;
    train::Session session(rank, nn::make_model(config), layout.apply(options));
    if (!choices.random_weights) fixture.load_weights(session);
    const optim::LrSchedule schedule = fixture.schedule(schedule_of);
    std::vector<train::StepResult> steps;
    for (std::int64_t s = 0; s < (choices.steps > 0 ? choices.steps : fixture.steps); ++s) {
      steps.push_back(session.step(fixture.batches(session, s, layout.micro), schedule.at(s)));
      steps.back().exposed_ms = 0;
    }
    auto weights = whole_weights(session);
    const std::scoped_lock lock(mutex);
    by_rank[rank.rank()] = steps;
    if (rank.rank() == 0) record = {std::move(steps), std::move(weights)};
  });
  for (const auto& [rank, steps] : by_rank) {
    for (std::size_t s = 0; s < steps.size(); ++s) {
      ENGINE_ASSERT(
          steps[s].loss == record.steps[s].loss && steps[s].grad_norm == record.steps[s].grad_norm,
          "rank {} reports another step {} than rank 0", rank, s);
    }
  }
  return record;
}

}  // namespace engine::test
