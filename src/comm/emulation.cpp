#include <sys/prctl.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <mutex>
#include <thread>
#include <utility>

#include "engine/comm/world.hpp"
#include "thread_transport.hpp"

namespace engine::comm {
namespace {

using detail::Clock;

constexpr std::size_t kControlBytes = 1024;            // an all_gather of less is control
constexpr std::chrono::milliseconds kSleepSlice{100};  // between looks for an abort

/// A rank's outgoing link, shared by all its groups.
class Link {
 public:
  explicit Link(const LinkEmulation& link) : link_(link) {}

  Clock::duration cost(std::int64_t bytes, int steps) const {
    return std::chrono::duration_cast<Clock::duration>(
        std::chrono::duration<double, std::milli>(link_.milliseconds(bytes, steps)));
  }
  /// Occupies the link for `cost`, from `at` or when it is free; returns the end.
  Clock::time_point reserve(Clock::time_point at, Clock::duration cost) {
    const std::scoped_lock lock(mutex_);
    free_ = std::max(at, free_) + cost;
    return free_;
  }

 private:
  LinkEmulation link_;
  std::mutex mutex_;
  Clock::time_point free_;
};

/// Collectives move first and then take their time. A message takes its time first, so that it
/// cannot arrive early.
class EmulatedTransport final : public Transport {
 public:
  EmulatedTransport(std::unique_ptr<Transport> inner, Link& link, int size)
      : inner_(std::move(inner)),
        observed_(dynamic_cast<const detail::Observed*>(inner_.get())),
        link_(&link),
        size_(size),
        levels_(static_cast<int>(std::bit_width(static_cast<unsigned>(size - 1)))) {}

  void all_reduce(const Tensor& data, ReduceOp op) override {
    inner_->all_reduce(data, op);
    occupy(2 * others(data.bytes()), 2 * (size_ - 1));
  }
  void all_gather(const Tensor& input, const Tensor& output) override {
    inner_->all_gather(input, output);
    if (output.bytes() < kControlBytes) return control();
    occupy(others(output.bytes()), size_ - 1);
  }
  void reduce_scatter(const Tensor& input, const Tensor& output, ReduceOp op) override {
    inner_->reduce_scatter(input, output, op);
    occupy(others(input.bytes()), size_ - 1);
  }
  void all_to_all(const Tensor& input, const Tensor& output) override {
    inner_->all_to_all(input, output);
    occupy(others(input.bytes()), size_ - 1);
  }
  void broadcast(const Tensor& data, int root) override {
    inner_->broadcast(data, root);
    occupy(static_cast<std::int64_t>(data.bytes()), levels_);
  }
  void send(const Tensor& data, int to) override {
    const auto bytes = static_cast<std::int64_t>(data.bytes());
    sleep_until(link_->reserve(Clock::now(), link_->cost(bytes, 1)));
    inner_->send(data, to);
  }
  void recv(const Tensor& data, int from) override { inner_->recv(data, from); }
  void barrier() override {
    inner_->barrier();
    control();
  }

 private:
  /// What goes to other ranks of `bytes` that hold a part for every rank.
  std::int64_t others(std::size_t bytes) const noexcept {
    return static_cast<std::int64_t>(bytes) * (size_ - 1) / size_;
  }
  /// When the collective that just ended could begin: its own time is part of what is emulated.
  Clock::time_point began() const { return observed_ ? observed_->all_entered() : Clock::now(); }
  void occupy(std::int64_t bytes, int steps) {
    sleep_until(link_->reserve(began(), link_->cost(bytes, steps)));
  }
  void control() { sleep_until(began() + link_->cost(0, levels_)); }

  void sleep_until(Clock::time_point end) const {
    prctl(PR_SET_TIMERSLACK, 1000UL, 0UL, 0UL, 0UL);  // ns, of this thread; 50 us by default
    for (Clock::time_point now = Clock::now(); now < end; now = Clock::now()) {
      std::this_thread::sleep_until(std::min(end, now + kSleepSlice));
      if (observed_) observed_->check_world();
    }
  }

  std::unique_ptr<Transport> inner_;
  const detail::Observed* observed_;
  Link* link_;
  int size_;
  int levels_;  // of a tree over all members: the logarithm, rounded up
};

}  // namespace

class EmulatedWorld final : public World {
 public:
  EmulatedWorld(std::unique_ptr<World> inner, const LinkEmulation& link)
      : inner_(std::move(inner)), link_(link) {}

  int rank() const noexcept override { return inner_->rank(); }
  int size() const noexcept override { return inner_->size(); }
  std::string_view backend() const noexcept override { return inner_->backend(); }
  void abort(const std::string& reason) noexcept override { inner_->abort(reason); }

 private:
  std::unique_ptr<Transport> connect(const Group& group) override {
    return std::make_unique<EmulatedTransport>(inner_->connect(group), link_, group.size());
  }

  std::unique_ptr<World> inner_;
  Link link_;
};

std::unique_ptr<World> emulate_links(std::unique_ptr<World> world, const LinkEmulation& link) {
  if (!link.active()) return world;
  return std::make_unique<EmulatedWorld>(std::move(world), link);
}

}  // namespace engine::comm
