#include "engine/program/simulator.hpp"

#include <algorithm>
#include <deque>
#include <map>
#include <set>

#include "engine/program/access.hpp"

namespace engine::program {
namespace {

using Kind = Resource::Kind;

/// The clocks of a rank's lanes and what is on its way.
class Rank {
 public:
  Rank(const Program& program, const ModelInfo& model, const Costs& costs,
       const ExecutorOptions& options)
      : program_(program), model_(model), costs_(costs), options_(options) {
    for (const int u : program.resident) values_[u] = transfer(Instruction::on_unit(Op::gather, u));
  }

  /// One step; returns its events and waiting time.
  Simulation step() {
    Simulation s;
    simulation_ = &s;
    const double begin = compute_;
    for (const Instruction& i : program_.code) run(i);
    s.step_ms = compute_ - begin;
    for (TraceEvent& e : s.trace.events) {
      e.begin_ms -= begin;
      e.end_ms -= begin;
    }
    simulation_ = nullptr;
    return s;
  }

 private:
  struct Transfer {
    Instruction instruction;
    double end = 0;
  };

  void log(const Instruction& i, double begin, double end, Lane lane, bool wait) {
    if (simulation_ != nullptr) simulation_->trace.events.push_back({i, begin, end, lane, wait});
  }

  Transfer transfer(const Instruction& i) {
    const double begin = std::max(compute_, data_);
    data_ = begin + costs_.of(i);
    log(i, begin, data_, Lane::data, false);
    if (options_.wait_at_issue) wait({i, data_});
    return {i, data_};
  }

  void wait(const Transfer& t) {
    if (t.end <= compute_) return;
    log(t.instruction, compute_, t.end, Lane::compute, true);
    if (simulation_ != nullptr) simulation_->exposed_ms += t.end - compute_;
    compute_ = t.end;
  }

  void retire(std::size_t most) {
    while (reductions_.size() > most) {
      wait(reductions_.front());
      reductions_.pop_front();
    }
  }

  void run(const Instruction& i) {
    if (i.op == Op::gather) {
      values_[i.unit] = transfer(i);
      return;
    }
    if (i.op == Op::reduce_gradient) {
      open_.erase(i.unit);
      reductions_.push_back(transfer(i));
      return;
    }
    const Access a = access(i, model_, program_);
    for (const std::vector<Resource>* list : {&a.reads, &a.updates, &a.drops}) {
      for (const Resource& r : *list) {
        if (r.kind == Kind::values) wait(values_[r.index]);
      }
    }
    for (const Resource& r : a.updates) {
      if (r.kind == Kind::gradients && program_.buffers.pooled_gradients &&
          open_.insert(r.index).second) {
        retire(static_cast<std::size_t>(options_.reductions_in_flight));
      }
    }
    if (i.op == Op::gradient_norm) retire(0);
    const double begin = compute_;
    compute_ += costs_.of(i);
    log(i, begin, compute_, Lane::compute, false);
  }

  const Program& program_;
  const ModelInfo& model_;
  const Costs& costs_;
  const ExecutorOptions& options_;
  Simulation* simulation_ = nullptr;
  double compute_ = 0;
  double data_ = 0;
  std::map<int, Transfer> values_;
  std::set<int> open_;
  std::deque<Transfer> reductions_;
};

}  // namespace

Simulation simulate(const Program& program, const ModelInfo& model, const Costs& costs,
                    const ExecutorOptions& options) {
  constexpr int kStepsBefore = 2;
  Rank rank(program, model, costs, options);
  for (int i = 0; i < kStepsBefore; ++i) rank.step();
  return rank.step();
}

}  // namespace engine::program
