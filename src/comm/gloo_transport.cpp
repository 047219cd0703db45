#include <gloo/common/error.h>
#include <gloo/context.h>
#include <gloo/transport/unbound_buffer.h>

#include <algorithm>
#include <cstring>
#include <functional>

#include "process_world.hpp"
#include "reduce.hpp"

namespace engine::comm::detail {
namespace {

constexpr std::int64_t kChunkBytes = 1 << 20;    // of what is received before it is reduced
constexpr std::size_t kSmallBytes = 16 << 10;    // up to here latency counts more than bytes
constexpr std::uint64_t kMessages = 1ULL << 63;  // slots of send and recv

std::byte* bytes_of(const Tensor& t) {
  return t.is_meta() ? nullptr : static_cast<std::byte*>(t.raw());
}

/// Transfers under way: started together, waited for together.
class Transfers {
 public:
  Transfers(ProcessLink& link, gloo::Context& context) : link_(&link), context_(&context) {}
  ~Transfers() { clear(); }
  Transfers(const Transfers&) = delete;
  Transfers& operator=(const Transfers&) = delete;

  void send(int to, std::uint64_t slot, const void* data, std::size_t bytes) {
    start(true, data, bytes).send(to, slot, 0, bytes);
  }
  void recv(int from, std::uint64_t slot, void* data, std::size_t bytes) {
    start(false, data, bytes).recv(from, slot, 0, bytes);
  }
  /// Throws Errc::peer_lost when the world fails meanwhile, gloo's exceptions otherwise.
  void wait() {
    const std::chrono::milliseconds limit(
        static_cast<std::int64_t>(link_->timeouts().collective_s * 1e3));
    for (const Transfer& t : list_) {
      const bool done = t.sends ? t.buffer->waitSend(limit) : t.buffer->waitRecv(limit);
      if (!done) {
        link_->check();
        ENGINE_FAIL(Errc::peer_lost, "a transfer was aborted");
      }
    }
    clear();
  }

 private:
  struct Transfer {
    std::unique_ptr<gloo::transport::UnboundBuffer> buffer;
    bool sends;
  };

  gloo::transport::UnboundBuffer& start(bool sends, const void* data, std::size_t bytes) {
    list_.push_back({context_->createUnboundBuffer(const_cast<void*>(data), bytes), sends});
    link_->add(*list_.back().buffer);
    return *list_.back().buffer;
  }
  void clear() {
    for (const Transfer& t : list_) link_->remove(*t.buffer);
    list_.clear();
  }

  ProcessLink* link_;
  gloo::Context* context_;
  std::vector<Transfer> list_;
};

/// Algorithms over point-to-point transfers, each pair of ranks directly: reductions add in rank
/// order, as on every backend.
class GlooTransport final : public Transport {
 public:
  GlooTransport(ProcessLink& link, const Group& group)
      : link_(&link),
        group_(group),
        size_(group.size()),
        rank_(group.rank),
        context_(link.connect(group)),
        sent_(static_cast<std::size_t>(size_)),
        received_(static_cast<std::size_t>(size_)) {}

  void all_reduce(const Tensor& data, ReduceOp op) override {
    Call call = describe(Operation::all_reduce, data);
    call.op = op;
    collective(call, [&] {
      const std::int64_t n = data.numel();
      if (data.bytes() <= kSmallBytes) {  // everybody gets everything and reduces all of it
        scratch_.resize(data.bytes() * static_cast<std::size_t>(size_));
        gather(bytes_of(data), data.bytes(), scratch_.data());
        std::byte* const out = bytes_of(data);
        std::vector<const std::byte*> inputs;
        for (int r = 0; r < size_; ++r) {
          inputs.push_back(scratch_.data() + static_cast<std::size_t>(r) * data.bytes());
        }
        reduce(data.dtype(), op, inputs, {&out, 1}, n);
        return;
      }
      // Each reduces a part, then all exchange the parts.
      const std::int64_t part = ((n + size_ - 1) / size_ + 63) / 64 * 64;
      const auto begin = [&](int r) { return std::min(n, r * part); };
      const std::size_t width = size_of(data.dtype());
      std::byte* const base = bytes_of(data);
      const auto at = [&](int r) { return base + static_cast<std::size_t>(begin(r)) * width; };
      const auto count = [&](int r) { return begin(r + 1) - begin(r); };
      reduce_parts(data.dtype(), op, at, count, at(rank_));
      Transfers transfers(*link_, *context_);
      const auto part_bytes = [&](int r) { return static_cast<std::size_t>(count(r)) * width; };
      for_each_peer([&](int to, int from) {  // with many ranks, the last parts may be empty
        if (count(from) > 0) transfers.recv(from, slot(kLastPhase), at(from), part_bytes(from));
        if (count(rank_) > 0) transfers.send(to, slot(kLastPhase), at(rank_), part_bytes(rank_));
      });
      transfers.wait();
    });
  }

  void all_gather(const Tensor& input, const Tensor& output) override {
    collective(describe(Operation::all_gather, input),
               [&] { gather(bytes_of(input), input.bytes(), bytes_of(output)); });
  }

  void reduce_scatter(const Tensor& input, const Tensor& output, ReduceOp op) override {
    Call call = describe(Operation::reduce_scatter, input);
    call.op = op;
    collective(call, [&] {
      const std::int64_t n = output.numel();
      reduce_parts(
          input.dtype(), op,
          [&](int r) { return bytes_of(input) + static_cast<std::size_t>(r) * output.bytes(); },
          [&](int) { return n; }, bytes_of(output));
    });
  }

  void all_to_all(const Tensor& input, const Tensor& output) override {
    collective(describe(Operation::all_to_all, input), [&] {
      const std::size_t part = input.bytes() / static_cast<std::size_t>(size_);
      const auto at = [&](const Tensor& t, int r) {
        return bytes_of(t) + static_cast<std::size_t>(r) * part;
      };
      Transfers transfers(*link_, *context_);
      for_each_peer([&](int to, int from) {
        transfers.recv(from, slot(0), at(output, from), part);
        transfers.send(to, slot(0), at(input, to), part);
      });
      std::memcpy(at(output, rank_), at(input, rank_), part);
      transfers.wait();
    });
  }

  // A binomial tree: who has the data sends it to the rank `distance` away, and so on in halves.
  // All meet at the end, so that a root learns of members that called something else.
  void broadcast(const Tensor& data, int root) override {
    Call call = describe(Operation::broadcast, data);
    call.root = root;
    collective(call, [&] {
      const int place = (rank_ - root + size_) % size_;
      const auto member = [&](int at) { return (at + root) % size_; };
      int distance = 1;
      while (distance < size_) distance *= 2;
      for (bool has = place == 0; distance >= 1; distance /= 2) {
        Transfers transfers(*link_, *context_);
        if (has && place % (2 * distance) == 0 && place + distance < size_) {
          transfers.send(member(place + distance), slot(0), data.raw(), data.bytes());
        } else if (!has && place % (2 * distance) == distance) {
          transfers.recv(member(place - distance), slot(0), data.raw(), data.bytes());
          has = true;
        }
        transfers.wait();
      }
      meet();
    });
  }

  void send(const Tensor& data, int to) override {
    const std::uint64_t number = sent_[static_cast<std::size_t>(to)]++;
    message(describe(Operation::send, data), to, number, [&](Transfers& t, std::byte* address) {
      t.send(to, kMessages | number, address, data.is_meta() ? 1 : data.bytes());
    });
  }

  void recv(const Tensor& data, int from) override {
    const std::uint64_t number = received_[static_cast<std::size_t>(from)]++;
    message(describe(Operation::recv, data), from, number, [&](Transfers& t, std::byte* address) {
      t.recv(from, kMessages | number, address, data.is_meta() ? 1 : data.bytes());
    });
  }

  void barrier() override {
    Call call;
    call.operation = Operation::barrier;
    guarded(group_.members, [&] {
      enter(call);
      meet();
    });
  }

 private:
  static constexpr std::uint64_t kLastPhase = 0xff;

  static Call describe(Operation operation, const Tensor& t) {
    Call call;
    call.operation = operation;
    call.dtype = t.dtype();
    call.meta = t.is_meta();
    call.numel = t.numel();
    call.input = bytes_of(t);
    return call;
  }

  template <class F>
  void for_each_peer(F&& f) const {
    for (int k = 1; k < size_; ++k) f((rank_ + k) % size_, (rank_ - k + size_) % size_);
  }

  void enter(const Call& call) {
    link_->enter(group_.name, static_cast<std::int64_t>(++sequence_), call);
    const std::string text = call.str();
    call_hash_ = std::hash<std::string>{}(text) % 0x10000U;
    where_ = fmt::format("{} #{} of group {}", text, sequence_, group_.name);
  }
  /// Slots hold what is called, so that different calls never meet.
  std::uint64_t slot(std::uint64_t phase) const {
    return (sequence_ << 24 | call_hash_ << 8 | phase) & ~kMessages;
  }

  /// Turns what gloo throws into an account of who is to blame.
  template <class F>
  void guarded(const std::vector<int>& suspects, F&& f) {
    const auto begin = SteadyClock::now();
    try {
      f();
    } catch (const gloo::Exception& error) {
      // The first member whose time is up closes its connections, which others see first.
      const std::chrono::duration<double> waited = SteadyClock::now() - begin;
      link_->explain(
          {group_.name, where_, suspects, waited.count() > link_->timeouts().collective_s / 2},
          error.what());
    }
  }

  template <class F>
  void collective(const Call& call, F&& move) {
    guarded(group_.members, [&] {
      enter(call);
      if (call.meta || call.numel == 0) {
        meet();
      } else {
        move();
      }
    });
  }

  /// A message of one member to another, of at least one byte.
  template <class F>
  void message(const Call& call, int peer, std::uint64_t number, F&& start) {
    const int world_peer = group_.members[static_cast<std::size_t>(peer)];
    where_ =
        fmt::format("{} #{} {} rank {} of group {}", name(call.operation), number + 1,
                    call.operation == Operation::send ? "to" : "from", world_peer, group_.name);
    guarded({world_peer}, [&] {
      link_->check();
      std::byte nothing{};
      Transfers transfers(*link_, *context_);
      start(transfers,
            call.meta || call.numel == 0 ? &nothing : const_cast<std::byte*>(call.input));
      transfers.wait();
    });
  }

  /// Everybody tells everybody that it is there.
  void meet() {
    std::byte own{};
    std::vector<std::byte> others(static_cast<std::size_t>(size_));
    Transfers transfers(*link_, *context_);
    for_each_peer([&](int to, int from) {
      transfers.recv(from, slot(kLastPhase), &others[static_cast<std::size_t>(from)], 1);
      transfers.send(to, slot(kLastPhase), &own, 1);
    });
    transfers.wait();
  }

  void gather(const std::byte* own, std::size_t bytes, std::byte* all) {
    const auto at = [&](int r) { return all + static_cast<std::size_t>(r) * bytes; };
    Transfers transfers(*link_, *context_);
    for_each_peer([&](int to, int from) {
      transfers.recv(from, slot(0), at(from), bytes);
      transfers.send(to, slot(0), own, bytes);
    });
    if (at(rank_) != own) std::memmove(at(rank_), own, bytes);
    transfers.wait();
  }

  /// Sums part `rank_` of everybody into `out`. `at(r)` and `count(r)` say where this rank's part
  /// for r lies. A chunk is reduced while the next one is on its way.
  template <class At, class Count>
  void reduce_parts(DType dtype, ReduceOp op, At&& at, Count&& count, std::byte* out) {
    const std::int64_t chunk = kChunkBytes / static_cast<std::int64_t>(size_of(dtype));
    const std::size_t width = size_of(dtype);
    const std::size_t own = static_cast<std::size_t>(count(rank_));
    std::int64_t rounds = 0;
    for (int r = 0; r < size_; ++r) rounds = std::max(rounds, (count(r) + chunk - 1) / chunk);
    const std::size_t room = std::min(static_cast<std::size_t>(chunk), own) * width;
    scratch_.resize(2 * room * static_cast<std::size_t>(size_));

    Transfers transfers[2] = {{*link_, *context_}, {*link_, *context_}};
    const auto landing = [&](std::int64_t round, int from) {
      return scratch_.data() +
             room * (static_cast<std::size_t>(round % 2) * static_cast<std::size_t>(size_) +
                     static_cast<std::size_t>(from));
    };
    const auto size_in = [&](std::int64_t round, int r) {
      return std::clamp<std::int64_t>(count(r) - round * chunk, 0, chunk);
    };
    const auto start = [&](std::int64_t round) {
      const std::uint64_t tag = slot(static_cast<std::uint64_t>(round) % kLastPhase);
      for_each_peer([&](int to, int from) {
        if (const std::int64_t n = size_in(round, rank_); n > 0) {
          transfers[round % 2].recv(from, tag, landing(round, from),
                                    static_cast<std::size_t>(n) * width);
        }
        if (const std::int64_t n = size_in(round, to); n > 0) {
          transfers[round % 2].send(to, tag,
                                    at(to) + static_cast<std::size_t>(round * chunk) * width,
                                    static_cast<std::size_t>(n) * width);
        }
      });
    };
    if (rounds > 0) start(0);
    for (std::int64_t round = 0; round < rounds; ++round) {
      if (round + 1 < rounds) start(round + 1);
      transfers[round % 2].wait();
      const std::int64_t n = size_in(round, rank_);
      if (n == 0) continue;
      const std::size_t offset = static_cast<std::size_t>(round * chunk) * width;
      std::vector<const std::byte*> inputs;
      for (int r = 0; r < size_; ++r) {
        inputs.push_back(r == rank_ ? at(rank_) + offset : landing(round, r));
      }
      std::byte* const to = out + offset;
      reduce(dtype, op, inputs, {&to, 1}, n);
    }
  }

  ProcessLink* link_;
  Group group_;
  int size_;
  int rank_;
  std::shared_ptr<gloo::Context> context_;
  std::uint64_t sequence_ = 0;
  std::uint64_t call_hash_ = 0;
  std::string where_;  // what this rank is in, for messages
  std::vector<std::uint64_t> sent_;
  std::vector<std::uint64_t> received_;
  std::vector<std::byte> scratch_;
};

}  // namespace

std::unique_ptr<Transport> make_gloo_transport(ProcessLink& link, const Group& group) {
  return std::make_unique<GlooTransport>(link, group);
}

}  // namespace engine::comm::detail
