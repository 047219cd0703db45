#include "prediction.hpp"

#include <algorithm>
#include <chrono>
#include <fstream>

#include "engine/nn/models.hpp"
#include "engine/ops/elementwise.hpp"
#include "engine/ops/matmul.hpp"
#include "engine/ops/table.hpp"
#include "engine/program/simulator.hpp"
#include "ranks.hpp"

namespace engine::train::detail {

parallel::RankContext::Options rank_options(const RunPlan& plan, int rank, bool quiet) {
  parallel::RankContext::Options options;
  options.device.threads = threads_of_rank(plan);
  options.device.seed = static_cast<std::uint64_t>(plan.config.train.seed);
  // Rank 0 speaks for all; others say what is wrong, and who they are.
  options.device.logger = Logger({.level = quiet || rank != 0 ? LogLevel::warning : LogLevel::info,
                                  .rank = rank,
                                  .world_size = rank == 0 ? 1 : plan.mesh.size(),
                                  .sink = {}});
  options.mesh = plan.mesh;
  return options;
}

namespace {

/// Milliseconds of what is no matrix product: transfers and the optimizer.
class OtherWork {
 public:
  OtherWork(const RunPlan& plan, Session& session, const Machine& machine)
      : session_(session), machine_(machine) {
    const Config::Emulate& e = plan.config.emulate;
    link_ = {e.latency_us, e.bandwidth_gbps};
  }

  double operator()(const program::Instruction& i) const {
    using program::Op;
    if (i.unit < 0) return 0;
    const parallel::Unit& unit = session_.units()[static_cast<std::size_t>(i.unit)];
    const int shards = unit.layout().shards();
    const auto shard = static_cast<double>(unit.layout().shard_numel());
    switch (i.op) {
      case Op::gather:
        return transfer(shard * (shards - 1) * static_cast<double>(size_of(session_.compute())),
                        shards - 1);
      case Op::reduce_gradient:
        return transfer(shard * (shards - 1) * 4, shards - 1);
      case Op::optimizer_step: {
        const double passes = 3 + 2 * unit.moments();  // weight read and written, gradient, moments
        return static_cast<double>(unit.master().bytes()) * passes / 2 / machine_.copy_bytes_per_ms;
      }
      default:
        return 0;
    }
  }

 private:
  double transfer(double bytes, int steps) const {
    if (link_.active()) return link_.milliseconds(static_cast<std::int64_t>(bytes), steps);
    return bytes / machine_.copy_bytes_per_ms;
  }

  Session& session_;
  Machine machine_;
  comm::LinkEmulation link_;
};

/// Seconds of the fastest of a few calls.
double fastest_s(FunctionRef<void()> call) {
  double best = 1e9;
  for (int i = 0; i < 5; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    call();
    const std::chrono::duration<double> s = std::chrono::steady_clock::now() - begin;
    best = std::min(best, s.count());
  }
  return best;
}

}  // namespace

Machine measure_machine(const RunPlan& plan) {
  constexpr std::int64_t kRows = 512;
  constexpr std::int64_t kCopyBytes = 32 << 20;
  const auto device = ops::make_device_context(rank_options(plan, 0, true).device);
  const std::int64_t rows =
      std::min(kRows, plan.config.batch.micro * plan.config.batch.sequence_length);
  const std::int64_t width = std::min<std::int64_t>(plan.model.hidden_size, 4096);
  const auto make = [&](std::int64_t r, std::int64_t c) {
    Tensor t = device->empty({r, c}, DType::f32, Category::workspace);
    ops::fill(*device, t, 0.5F);
    return t;
  };
  const Tensor x = make(rows, width);
  const Tensor w = make(width, 4 * width);
  const Tensor y = make(rows, 4 * width);
  const double product_s =
      fastest_s([&] { ops::matmul(*device, x, ops::Trans::no, w, ops::Trans::no, y); });
  const Tensor from = make(kCopyBytes / 4, 1);
  const Tensor to = make(kCopyBytes / 4, 1);
  const double copy_s = fastest_s([&] { ops::copy(*device, from, to); });
  // Ranks that share cores share their speed.
  const double crowd = std::max(
      1.0, static_cast<double>(local_ranks(plan) * device->pool().threads()) / available_cpus());
  return {8.0 * static_cast<double>(rows * width * width) / product_s / 1e3 / crowd,
          static_cast<double>(kCopyBytes) / copy_s / 1e3 / crowd};
}

Prediction predict(const RunPlan& plan, const Machine* machine) {
  parallel::RankContext::Options options = rank_options(plan, 0, true);
  options.device.device.type = DeviceType::meta;
  const auto world = comm::make_meta_world(0, plan.mesh.size());
  parallel::RankContext rank(options, *world);
  Session session(rank, nn::make_model(plan.model), plan.session);
  std::vector<nn::MicroBatch> micros;
  for (int m = 0; m < plan.micros; ++m) {
    micros.push_back(
        session.make_batch(plan.config.batch.micro, plan.config.batch.sequence_length));
  }
  program::Trace trace;
  session.step(micros, plan.schedule.at(0));  // enters the state between steps
  const std::int64_t sent_before = rank.sent_bytes();
  const double flops_before = rank.device().counters().matmul_flops;
  session.step(micros, plan.schedule.at(0), &trace);

  const program::Program& program = session.step_program(plan.micros);
  Prediction p;
  p.memory = rank.device().memory().stats();
  p.flops = rank.device().counters().matmul_flops - flops_before;
  p.parameters = session.parameter_count();
  p.sent_bytes = rank.sent_bytes() - sent_before;
  p.program = program.summary(session.model_info());
  if (machine != nullptr) {
    const auto costs =
        program::Costs::modelled(trace, machine->flops_per_ms, OtherWork(plan, session, *machine));
    const auto simulation = program::simulate(program, session.model_info(), costs);
    p.step_ms = simulation.step_ms;
    p.exposed_ms = simulation.exposed_ms;
  }
  return p;
}

std::int64_t available_memory_bytes() {
  std::ifstream file("/proc/meminfo");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("MemAvailable:")) return std::stoll(line.substr(13)) * 1024;
  }
  return 0;
}

}  // namespace engine::train::detail
