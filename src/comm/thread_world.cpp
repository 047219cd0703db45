#include <cstring>
#include <exception>
#include <thread>

#include "engine/comm/world.hpp"
#include "engine/core/error.hpp"
#include "meeting.hpp"
#include "reduce.hpp"

namespace engine::comm {
namespace detail {

/// Members read each other's memory directly: a single copy.
class ThreadTransport final : public Transport {
 public:
  ThreadTransport(std::shared_ptr<Meeting> meeting, const Group& group)
      : meeting_(std::move(meeting)), size_(group.size()), rank_(group.rank) {}

  // Chunk r of everyone's data is read and written by rank r alone.
  void all_reduce(const Tensor& data, ReduceOp op) override {
    meet({"all_reduce", data.dtype(), data.numel(), -1, op, address(data), address(data)}, [&] {
      constexpr std::int64_t kGranule = 1024;
      const std::int64_t chunk =
          (data.numel() + size_ * kGranule - 1) / (size_ * kGranule) * kGranule;
      const std::int64_t begin = std::min(data.numel(), rank_ * chunk);
      const std::int64_t end = std::min(data.numel(), begin + chunk);
      const std::size_t offset = static_cast<std::size_t>(begin) * size_of(data.dtype());
      std::vector<void*> outputs;
      for (int r = 0; r < size_; ++r) outputs.push_back(output(r) + offset);
      reduce(inputs(offset), outputs, end - begin, data.dtype(), op);
    });
  }

  void all_gather(const Tensor& input, const Tensor& output) override {
    meet({"all_gather", input.dtype(), input.numel(), -1, {}, address(input), address(output)},
         [&] {
           // Each begins with its neighbour, so that not all read from the same rank at once.
           for (int k = 0; k < size_; ++k) {
             const int r = (rank_ + k) % size_;
             copy(address(output) + static_cast<std::size_t>(r) * input.bytes(), this->input(r),
                  input.bytes());
           }
         });
  }

  void reduce_scatter(const Tensor& input, const Tensor& output, ReduceOp op) override {
    meet({"reduce_scatter", input.dtype(), input.numel(), -1, op, address(input), nullptr}, [&] {
      void* const outputs[] = {address(output)};
      reduce(inputs(static_cast<std::size_t>(rank_) * output.bytes()), outputs, output.numel(),
             input.dtype(), op);
    });
  }

  void all_to_all(const Tensor& input, const Tensor& output) override {
    meet({"all_to_all", input.dtype(), input.numel(), -1, {}, address(input), nullptr}, [&] {
      const std::size_t part = input.bytes() / static_cast<std::size_t>(size_);
      for (int k = 0; k < size_; ++k) {
        const int r = (rank_ + k) % size_;
        copy(address(output) + static_cast<std::size_t>(r) * part,
             this->input(r) + static_cast<std::size_t>(rank_) * part, part);
      }
    });
  }

  void broadcast(const Tensor& data, int root) override {
    meet({"broadcast", data.dtype(), data.numel(), root, {}, address(data), nullptr},
         [&] { copy(address(data), input(root), data.bytes()); });
  }

  void send(const Tensor& data, int to) override {
    meeting_->send(rank_, to, {"send", data.dtype(), data.numel(), to, {}, address(data), nullptr});
  }
  void recv(const Tensor& data, int from) override {
    meeting_->recv(from, rank_,
                   {"recv", data.dtype(), data.numel(), from, {}, nullptr, address(data)});
  }
  void barrier() override {
    meet({"barrier"}, [] {});
  }

 private:
  static std::byte* address(const Tensor& t) {
    return t.is_meta() ? nullptr : static_cast<std::byte*>(t.raw());
  }
  static void copy(std::byte* to, const std::byte* from, std::size_t bytes) {
    if (bytes > 0 && to != from) std::memcpy(to, from, bytes);
  }
  const std::byte* input(int r) const {
    return static_cast<const std::byte*>(meeting_->call(r).input);
  }
  std::byte* output(int r) const { return static_cast<std::byte*>(meeting_->call(r).output); }
  std::vector<const void*> inputs(std::size_t offset) const {
    std::vector<const void*> list;
    for (int r = 0; r < size_; ++r) list.push_back(input(r) + offset);
    return list;
  }

  template <class Work>
  void meet(const Call& call, Work&& work) {
    meeting_->post(rank_, call);
    if (call.input != nullptr && call.numel > 0) work();
    meeting_->finish(rank_);
  }

  std::shared_ptr<Meeting> meeting_;
  int size_;
  int rank_;
};

}  // namespace detail

struct ThreadWorlds::State {
  State(int the_size, const Timeouts& the_timeouts)
      : size(the_size), timeouts(the_timeouts), hub(the_size) {}

  int size;
  Timeouts timeouts;
  detail::Hub hub;
  std::mutex mutex;
  std::map<std::string, std::weak_ptr<detail::Meeting>> meetings;

  std::shared_ptr<detail::Meeting> meeting(const Group& group) {
    std::string key = group.name;
    for (const int member : group.members) key += fmt::format(" {}", member);
    const std::scoped_lock lock(mutex);
    std::shared_ptr<detail::Meeting> found = meetings[key].lock();
    if (!found) {
      found = std::make_shared<detail::Meeting>(hub, group, timeouts.collective_s);
      meetings[key] = found;
    }
    return found;
  }

  class Member;
};

class ThreadWorlds::State::Member final : public World {
 public:
  Member(std::shared_ptr<State> state, int rank) : state_(std::move(state)), rank_(rank) {}
  ~Member() override { state_->hub.leave(rank_); }
  Member(const Member&) = delete;
  Member& operator=(const Member&) = delete;

  int rank() const noexcept override { return rank_; }
  int size() const noexcept override { return state_->size; }
  std::string_view backend() const noexcept override { return "thread"; }
  void abort(const std::string& reason) noexcept override { state_->hub.abort(rank_, reason); }

 private:
  std::unique_ptr<Transport> connect(const Group& group) override {
    return std::make_unique<detail::ThreadTransport>(state_->meeting(group), group);
  }

  std::shared_ptr<State> state_;
  int rank_;
};

ThreadWorlds::ThreadWorlds(int size, const Timeouts& timeouts)
    : state_(std::make_shared<State>(size, timeouts)) {
  ENGINE_ASSERT(size >= 1, "{} ranks", size);
}

ThreadWorlds::~ThreadWorlds() = default;

std::unique_ptr<World> ThreadWorlds::join(int rank) {
  ENGINE_ASSERT(rank >= 0 && rank < state_->size, "rank {} of {}", rank, state_->size);
  return std::make_unique<State::Member>(state_, rank);
}

void spawn_ranks(int size, FunctionRef<std::unique_ptr<World>(int)> join,
                 FunctionRef<void(World&)> body) {
  std::mutex mutex;
  std::exception_ptr first;
  // Recorded before the others are told, so what follows from it is recorded later.
  const auto record = [&] {
    const std::scoped_lock lock(mutex);
    if (!first) first = std::current_exception();
  };
  const auto run = [&](int rank) {
    std::unique_ptr<World> world;
    try {
      world = join(rank);
      body(*world);
    } catch (const std::exception& error) {
      record();
      if (world) world->abort(error.what());
    } catch (...) {
      record();
      if (world) world->abort("an exception of unknown type");
    }
  };
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) threads.emplace_back(run, rank);
  for (std::thread& thread : threads) thread.join();
  if (first) std::rethrow_exception(first);
}

void spawn_ranks(int size, const Timeouts& timeouts, FunctionRef<void(World&)> body) {
  ThreadWorlds worlds(size, timeouts);
  spawn_ranks(
      size, [&](int rank) { return worlds.join(rank); }, body);
}

}  // namespace engine::comm
