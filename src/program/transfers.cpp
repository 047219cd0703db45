#include "transfers.hpp"

#include <algorithm>
#include <chrono>
#include <exception>

namespace engine::program::detail {

double now_ms() {
  using Clock = std::chrono::steady_clock;
  return std::chrono::duration<double, std::milli>(Clock::now().time_since_epoch()).count();
}

Transfers::Transfers(parallel::RankContext& rank, std::span<parallel::Unit> units,
                     const ExecutorOptions& options)
    : rank_(&rank),
      units_(units),
      options_(options),
      values_(units.size()),
      stale_(units.size(), true),
      exceptions_(std::uncaught_exceptions()) {}

Transfers::~Transfers() {
  try {
    if (std::uncaught_exceptions() > exceptions_) {
      rank_->world().abort("it threw an exception while collectives were under way");
    }
    rank_->data_lane().drain();  // what is under way refers to this object
  } catch (...) {                // told to whoever waited
  }
}

void Transfers::begin(const Program& program, Trace* trace) {
  trace_ = trace;
  exposed_ms_ = 0;
  buffers_ = program.buffers;
  reductions_.clear();
  if (!buffers_.sharded_state) return;
  const std::vector<int>& resident = program.resident;
  for (int u = 0; u < static_cast<int>(units_.size()); ++u) {
    const bool wanted =
        !buffers_.pooled_values || std::find(resident.begin(), resident.end(), u) != resident.end();
    if (wanted) {
      make_whole(u);
    } else if (unit(u).resident()) {
      release(u);
    }
  }
}

void Transfers::end() {
  const std::scoped_lock lock(log_mutex_);
  if (trace_ != nullptr) {
    trace_->events.insert(trace_->events.end(), log_.begin(), log_.end());
  }
  log_.clear();
  trace_ = nullptr;
}

void Transfers::make_whole(int u) {
  if (stale_[index(u)] || !unit(u).resident()) gather(Instruction::on_unit(Op::gather, u));
}

Transfers::Transfer Transfers::issue(const Instruction& i, parallel::Unit::Transfer call) {
  Transfer transfer = {{}, i, call};
  transfer.event = rank_->data_lane().submit([this, i, call = std::move(call)] {
    const double begin = now_ms();
    call();
    const std::scoped_lock lock(log_mutex_);
    log_.push_back({i, begin, now_ms(), Lane::data, false});
  });
  if (options_.wait_at_issue) wait(transfer);
  return transfer;
}

void Transfers::wait(const Transfer& transfer) {
  if (transfer.event.done()) return transfer.event.wait();  // throws what it threw
  const double begin = now_ms();
  transfer.event.wait();
  const double end = now_ms();
  exposed_ms_ += end - begin;
  if (trace_ != nullptr) {
    trace_->events.push_back({transfer.instruction, begin, end, Lane::compute, true});
  }
}

void Transfers::wait_for_values(int u) {
  wait(values_[index(u)]);
  values_[index(u)] = {};
}

void Transfers::gather(const Instruction& i) {
  values_[index(i.unit)] = issue(i, unit(i.unit).gather(rank_->shard_group()));
  stale_[index(i.unit)] = false;
}

void Transfers::release(int u) {
  wait_for_values(u);
  unit(u).release();
}

void Transfers::reduce_gradient(const Instruction& i) {
  reductions_.push_back(
      issue(i, unit(i.unit).reduce(rank_->shard_group(), rank_->replica_group(), i.last)));
}

/// Waits until at most `most` reductions are under way; the buffers of the others are free then.
void Transfers::retire(std::size_t most) {
  while (reductions_.size() > most) {
    wait(reductions_.front());
    reductions_.pop_front();
  }
}

void Transfers::open_gradients(int u) {
  if (unit(u).gradients_open()) return;
  if (buffers_.pooled_gradients) retire(static_cast<std::size_t>(options_.reductions_in_flight));
  unit(u).open_gradients();
}

}  // namespace engine::program::detail
