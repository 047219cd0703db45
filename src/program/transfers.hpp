#pragma once
// Gathers and reductions under way: what the compute lane hands to the data lane and waits for.
#include <deque>
#include <mutex>
#include <span>
#include <vector>

#include "engine/parallel/rank_context.hpp"
#include "engine/parallel/unit.hpp"
#include "engine/program/executor.hpp"

namespace engine::program::detail {

/// Milliseconds of the clock that traces use.
double now_ms();

/// One rank's transfers. What was gathered outlives a run; the rest belongs to the run in progress.
class Transfers {
 public:
  Transfers(parallel::RankContext& rank, std::span<parallel::Unit> units,
            const ExecutorOptions& options);
  /// Waits for the data lane. When an exception passes through, tells the peers first: those that
  /// are never told would never come to what is under way.
  ~Transfers();
  Transfers(const Transfers&) = delete;
  Transfers& operator=(const Transfers&) = delete;

  /// A new run, traced if `trace` is given: makes units whole that its program expects whole at
  /// entry, and no others.
  void begin(const Program& program, Trace* trace);
  /// The run is over: logs what the data lane did.
  void end();
  /// Time that this thread waited since `begin`.
  double exposed_ms() const noexcept { return exposed_ms_; }

  void gather(const Instruction& i);
  void release(int unit);
  void reduce_gradient(const Instruction& i);
  /// The unit's values were stepped or written: they need a gather where they are kept whole.
  void values_changed(int unit) { stale_[index(unit)] = true; }

  void wait_for_values(int unit);
  /// Gives backward somewhere to write.
  void open_gradients(int unit);
  void wait_for_reductions() { retire(0); }
  /// Makes a unit whole outside of a program.
  void make_whole(int unit);

 private:
  struct Transfer {
    Event event;
    Instruction instruction;
    parallel::Unit::Transfer call;  // keeps its buffers until this thread lets them go
  };

  static std::size_t index(int unit) { return static_cast<std::size_t>(unit); }
  parallel::Unit& unit(int u) const { return units_[index(u)]; }
  Transfer issue(const Instruction& i, parallel::Unit::Transfer call);
  void wait(const Transfer& transfer);
  void retire(std::size_t most);

  parallel::RankContext* rank_;
  std::span<parallel::Unit> units_;
  ExecutorOptions options_;
  Buffers buffers_;
  Trace* trace_ = nullptr;
  double exposed_ms_ = 0;
  std::vector<Transfer> values_;     // by unit: the latest gather
  std::vector<bool> stale_;          // by unit: whole values are not those of the masters
  std::deque<Transfer> reductions_;  // not yet waited for
  std::mutex log_mutex_;
  std::vector<TraceEvent> log_;  // of the data lane, by its thread
  int exceptions_;               // passing through when it was made
};

}  // namespace engine::program::detail
