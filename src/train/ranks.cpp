#include "ranks.hpp"

#include <algorithm>

#include "engine/comm/launch.hpp"
#include "engine/core/thread_pool.hpp"

namespace engine::train::detail {
namespace {

using LaunchInfo = comm::LaunchInfo;

comm::Timeouts timeouts_of(const RunPlan& plan) {
  const Config::Comm& c = plan.config.comm;
  return {static_cast<double>(c.timeout_s), static_cast<double>(c.startup_timeout_s)};
}

std::optional<LaunchInfo> launch_of(const RunPlan& plan) {
  std::optional<LaunchInfo> launch = comm::detect_launch();
  const int size = plan.mesh.size();
  if (!launch) return std::nullopt;
  ENGINE_CHECK(launch->world_size == size, Errc::invalid_argument,
               "the launcher ({}) started {} processes, the config's [parallel] has {} ranks (data "
               "{} x tensor {} "
               "x pipeline {}): start as many processes, or change the degrees",
               launch->launcher, launch->world_size, size, plan.mesh.data, plan.mesh.tensor,
               plan.mesh.pipeline);
  ENGINE_CHECK(
      plan.config.comm.backend != "thread" || size == 1, Errc::invalid_argument,
      "comm.backend = \"thread\" is for ranks in one process, but a launcher ({}) started {}: use "
      "\"gloo\" or \"auto\"",
      launch->launcher, size);
  return launch;
}

}  // namespace

int local_ranks(const RunPlan& plan) { return launch_of(plan) ? 1 : plan.mesh.size(); }

int threads_of_rank(const RunPlan& plan) {
  const std::optional<LaunchInfo> launch = launch_of(plan);
  std::int64_t threads = plan.config.train.threads;
  if (threads == 0) threads = available_cpus() / (launch ? launch->local_size : 1);
  return static_cast<int>(std::max<std::int64_t>(1, threads / local_ranks(plan)));
}

void run_ranks(const RunPlan& plan, FunctionRef<void(comm::World&)> body) {
  const int size = plan.mesh.size();
  const comm::Timeouts timeouts = timeouts_of(plan);
  const std::optional<LaunchInfo> launch = launch_of(plan);
  const Config::Emulate& e = plan.config.emulate;
  const comm::LinkEmulation link = {e.latency_us, e.bandwidth_gbps};
  const auto behind_link = [&](std::unique_ptr<comm::World> world) {
    return link.active() ? comm::emulate_links(std::move(world), link) : std::move(world);
  };
  if (size == 1) {
    body(*behind_link(comm::make_single_world()));
  } else if (launch) {
    const auto world = behind_link(comm::join_processes(*launch, timeouts));
    try {
      body(*world);
    } catch (const std::exception& error) {
      world->abort(error.what());
      throw;
    }
  } else if (plan.config.comm.backend == "gloo") {
    const LaunchInfo all = comm::local_launch(size);
    comm::spawn_ranks(
        size,
        [&](int rank) {
          LaunchInfo own = all;
          own.rank = own.local_rank = rank;
          return behind_link(comm::join_processes(own, timeouts));
        },
        body);
  } else {
    comm::ThreadWorlds worlds(size, timeouts);
    comm::spawn_ranks(
        size, [&](int rank) { return behind_link(worlds.join(rank)); }, body);
  }
}

}  // namespace engine::train::detail
