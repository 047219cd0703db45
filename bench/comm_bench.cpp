// Collectives between two ranks of one process, beside the plain copies measured in the same run:
// for all_reduce, every rank copies its N bytes into a staging area, waits, and copies N bytes out;
// for all_gather and reduce_scatter, every rank copies the bytes it receives. Both are timed in
// turns, from a barrier to the end of the slowest rank; `ratio` is the median of their ratios.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <functional>
#include <vector>

#include "engine/comm/exchange.hpp"
#include "engine/comm/world.hpp"

namespace engine::comm {
namespace {

constexpr int kRanks = 2;

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

/// A rank's buffers, of its own arena. f32 [n].
struct Buffers {
  Arena arena;
  Tensor data;
  Tensor staging;
  Tensor result;

  explicit Buffers(std::int64_t n) {
    for (Tensor* t : {&data, &staging, &result}) {
      *t = Tensor::allocate(arena, {n}, DType::f32, Category::communication);
      std::fill_n(t->data<float>(), n, 0.5F);
    }
  }
};

using Step = std::function<void(Communicator&, const Buffers&, const std::byte* peer_staging)>;

void all_reduce(Communicator& comm, const Buffers& b, const std::byte* /*peer*/) {
  comm.all_reduce(b.data).wait();
}
void copy_in_and_out(Communicator& comm, const Buffers& b, const std::byte* peer) {
  std::memcpy(b.staging.raw(), b.data.raw(), b.data.bytes());
  comm.barrier().wait();
  std::memcpy(b.data.raw(), peer, b.data.bytes());
}

Tensor own_part(const Communicator& comm, const Tensor& t) {
  const std::int64_t part = t.numel() / kRanks;
  return t.slice(0, comm.rank() * part, (comm.rank() + 1) * part);
}
void all_gather(Communicator& comm, const Buffers& b, const std::byte* /*peer*/) {
  comm.all_gather(own_part(comm, b.data), b.data).wait();
}
void reduce_scatter(Communicator& comm, const Buffers& b, const std::byte* /*peer*/) {
  comm.reduce_scatter(b.data, own_part(comm, b.result)).wait();
}
void copy_received(Communicator& /*comm*/, const Buffers& b, const std::byte* peer) {
  std::memcpy(b.result.raw(), peer, b.data.bytes() / kRanks);
}

/// Argument: N in KB.
void bench(benchmark::State& state, const Step& collective, const Step& bound) {
  const std::int64_t n = state.range(0) * 1024 / 4;
  const std::int64_t inner = std::max<std::int64_t>(1, 8192 / state.range(0));  // runs a sample
  const std::size_t rounds = state.range(0) > 16 * 1024 ? 21 : 101;
  std::vector<double> times(rounds);
  std::vector<double> bounds(rounds);
  std::vector<double> ratios(rounds);

  spawn_ranks(kRanks, {}, [&](World& world) {
    Lane lane;
    const auto group = world.group("bench", {0, 1}, lane);
    const Buffers buffers(n);
    const auto staging =
        engine::comm::exchange(*group, static_cast<const std::byte*>(buffers.staging.raw()));
    const std::byte* const peer = staging[static_cast<std::size_t>(1 - group->rank())];
    const auto time = [&](const Step& step) {
      group->barrier().wait();
      const auto start = std::chrono::steady_clock::now();
      for (std::int64_t i = 0; i < inner; ++i) step(*group, buffers, peer);
      const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
      const std::vector<double> all = engine::comm::exchange(*group, taken.count());
      return *std::max_element(all.begin(), all.end()) / static_cast<double>(inner);
    };
    for (int warm_up = 0; warm_up < 2; ++warm_up) {
      time(bound);
      time(collective);
    }
    for (std::size_t round = 0; round < rounds; ++round) {
      const double copy = time(bound);
      const double taken = time(collective);
      if (group->rank() != 0) continue;
      times[round] = taken;
      bounds[round] = copy;
      ratios[round] = taken / copy;
    }
  });
  for (auto _ : state) state.SetIterationTime(median(times));
  state.counters["bound_us"] = median(bounds) * 1e6;
  state.counters["ratio"] = median(ratios);
}

void sizes(benchmark::internal::Benchmark* b) {
  b->Arg(64)->Arg(1024)->Arg(65536)->UseManualTime()->Iterations(1)->Unit(benchmark::kMicrosecond);
}

BENCHMARK_CAPTURE(bench, all_reduce, all_reduce, copy_in_and_out)->Apply(sizes);
BENCHMARK_CAPTURE(bench, all_gather, all_gather, copy_received)->Apply(sizes);
BENCHMARK_CAPTURE(bench, reduce_scatter, reduce_scatter, copy_received)->Apply(sizes);

}  // namespace
}  // namespace engine::comm

BENCHMARK_MAIN();
