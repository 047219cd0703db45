#pragma once
// Ordered asynchronous work: what overlaps with what in a step is which lane it was submitted to.
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace engine {

/// Completion of submitted work. Cheap to copy; a default event is complete.
class Event {
 public:
  Event() = default;

  bool done() const noexcept;
  /// Returns when the work is complete. Throws what the work threw. Has no timeout of its own: work
  /// that can block (a collective) has one.
  void wait() const;

 private:
  friend class Lane;
  struct State;
  explicit Event(std::shared_ptr<State> state) : state_(std::move(state)) {}
  std::shared_ptr<State> state_;
};

/// A queue whose work runs one after another, in the order of submission. On the CPU a lane is
/// either the submitting thread itself (inline: the compute lane) or a thread of its own.
/// After work has thrown, a lane is broken: later work does not run and its events throw the same.
class Lane {
 public:
  /// A lane that runs work in the submitting thread, at once.
  Lane();
  /// A lane with a thread; `name` shows in traces and debuggers.
  explicit Lane(std::string name);
  /// Waits for what was submitted.
  ~Lane();
  Lane(const Lane&) = delete;
  Lane& operator=(const Lane&) = delete;

  /// Runs `work` after all earlier work of this lane and after `after`. From inside work of this
  /// very lane it runs at once. The closure is destroyed before the event is complete, so tensors
  /// it held are free again then.
  /// Async: complete when the event is. Throws at once only on an inline lane.
  Event submit(std::function<void()> work, std::vector<Event> after = {});
  /// Returns when all submitted work is complete. Throws what any of it threw.
  void drain();
  /// Whether all submitted work is complete.
  bool idle() const noexcept;
  bool threaded() const noexcept;
  const std::string& name() const noexcept;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace engine
