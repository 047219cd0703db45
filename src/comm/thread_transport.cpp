#include "thread_transport.hpp"

#include <algorithm>
#include <utility>

#include "copy.hpp"
#include "reduce.hpp"

namespace engine::comm::detail {
namespace {

std::byte* bytes_of(const Tensor& t) {
  return t.is_meta() ? nullptr : static_cast<std::byte*>(t.raw());
}

class ThreadTransport final : public Transport, public Observed {
 public:
  ThreadTransport(const Group& group, std::shared_ptr<Meeting> meeting)
      : size_(group.size()),
        rank_(group.rank),
        meeting_(std::move(meeting)),
        sent_(static_cast<std::size_t>(size_)),
        received_(static_cast<std::size_t>(size_)),
        inputs_(static_cast<std::size_t>(size_)),
        outputs_(static_cast<std::size_t>(size_)) {}

  void all_reduce(const Tensor& data, ReduceOp op) override {
    Call call = describe(Operation::all_reduce, data, data);
    call.op = op;
    collective(call, [&](std::span<const Call> calls) {
      // Each rank reduces a chunk of whole cache lines, for everybody.
      const std::int64_t n = data.numel();
      const std::int64_t chunk = ((n + size_ - 1) / size_ + 63) / 64 * 64;
      const std::int64_t begin = std::min(n, chunk * rank_);
      const std::size_t offset = static_cast<std::size_t>(begin) * size_of(data.dtype());
      for (std::size_t r = 0; r < calls.size(); ++r) {
        inputs_[r] = calls[r].input + offset;
        outputs_[r] = calls[r].output + offset;
      }
      reduce(data.dtype(), op, inputs_, outputs_, std::min(n, begin + chunk) - begin);
    });
  }

  void all_gather(const Tensor& input, const Tensor& output) override {
    collective(describe(Operation::all_gather, input, output), [&](std::span<const Call> calls) {
      for_each_member([&](std::size_t r) {
        std::byte* const part = bytes_of(output) + r * input.bytes();
        if (calls[r].input != part) copy(part, calls[r].input, input.bytes());
      });
    });
  }

  void reduce_scatter(const Tensor& input, const Tensor& output, ReduceOp op) override {
    Call call = describe(Operation::reduce_scatter, input, output);
    call.op = op;
    collective(call, [&](std::span<const Call> calls) {
      for (std::size_t r = 0; r < calls.size(); ++r) {
        inputs_[r] = calls[r].input + static_cast<std::size_t>(rank_) * output.bytes();
      }
      std::byte* const own = bytes_of(output);
      reduce(input.dtype(), op, inputs_, {&own, 1}, output.numel());
    });
  }

  void all_to_all(const Tensor& input, const Tensor& output) override {
    collective(describe(Operation::all_to_all, input, output), [&](std::span<const Call> calls) {
      const std::size_t part = input.bytes() / calls.size();
      for_each_member([&](std::size_t r) {
        copy(bytes_of(output) + r * part, calls[r].input + static_cast<std::size_t>(rank_) * part,
             part);
      });
    });
  }

  void broadcast(const Tensor& data, int root) override {
    Call call = describe(Operation::broadcast, data, data);
    call.root = root;
    collective(call, [&](std::span<const Call> calls) {
      if (rank_ == root) return;
      copy(bytes_of(data), calls[static_cast<std::size_t>(root)].input, data.bytes());
    });
  }

  void send(const Tensor& data, int to) override {
    const std::uint64_t sequence = sent_[static_cast<std::size_t>(to)]++;
    meeting_->send(rank_, to, sequence, describe(Operation::send, data, data));
  }

  void recv(const Tensor& data, int from) override {
    const std::uint64_t sequence = received_[static_cast<std::size_t>(from)]++;
    meeting_->recv(rank_, from, sequence, describe(Operation::recv, data, data));
  }

  void barrier() override {
    Call call;
    call.operation = Operation::barrier;
    enter(call);
  }

  Clock::time_point all_entered() const noexcept override { return all_entered_; }
  void check_world() const override { meeting_->check_world(); }

 private:
  static Call describe(Operation operation, const Tensor& input, const Tensor& output) {
    Call call;
    call.operation = operation;
    call.dtype = input.dtype();
    call.meta = input.is_meta();
    call.numel = input.numel();
    call.input = bytes_of(input);
    call.output = bytes_of(output);
    return call;
  }

  std::span<const Call> enter(const Call& call) {
    const std::span<const Call> calls = meeting_->enter(rank_, sequence_++, call);
    all_entered_ = std::max_element(calls.begin(), calls.end(), [](const Call& a, const Call& b) {
                     return a.entered < b.entered;
                   })->entered;
    return calls;
  }

  template <class Move>
  void collective(const Call& call, const Move& move) {
    const std::span<const Call> calls = enter(call);
    if (!call.meta && call.numel > 0) move(calls);
    meeting_->leave(++collectives_);
  }

  /// Starts with the next member, so that members do not all read the same one.
  template <class F>
  void for_each_member(const F& f) const {
    for (int k = 1; k <= size_; ++k) f(static_cast<std::size_t>((rank_ + k) % size_));
  }

  int size_;
  int rank_;
  std::shared_ptr<Meeting> meeting_;
  std::uint64_t sequence_ = 0;
  std::uint32_t collectives_ = 0;
  std::vector<std::uint64_t> sent_;
  std::vector<std::uint64_t> received_;
  std::vector<const std::byte*> inputs_;
  std::vector<std::byte*> outputs_;
  Clock::time_point all_entered_;
};

}  // namespace

std::unique_ptr<Transport> make_thread_transport(const Group& group,
                                                 std::shared_ptr<Meeting> meeting) {
  return std::make_unique<ThreadTransport>(group, std::move(meeting));
}

}  // namespace engine::comm::detail
