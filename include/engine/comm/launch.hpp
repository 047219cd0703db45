#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "engine/comm/world.hpp"

namespace engine::comm {

/// What a launcher told this process about its place.
struct LaunchInfo {
  int rank = 0;
  int world_size = 1;
  int local_rank = 0;
  int local_size = 1;       ///< processes on this host that share its CPUs, as far as is known
  std::string master_host;  ///< where rank 0's store listens
  int master_port = 0;
  std::string launcher;  ///< "torchrun", "slurm", "openmpi" or "pmi": which variables were found
};

/// Reads variables through `getenv`-like `read` (for tests; default: the environment).
/// RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR, MASTER_PORT (torchrun,
/// scripts/launch.sh), else
/// Slurm's, Open MPI's or PMI's, with MASTER_ADDR and MASTER_PORT derived where a launcher does not
/// give them. None present: nothing.
/// Throws Errc::invalid_argument naming the variable that is missing, no number or out of range.
std::optional<LaunchInfo> detect_launch(
    const std::function<const char*(const char*)>& read = nullptr);

/// Rank 0's place in a world of `size` ranks on this host, with a free port.
LaunchInfo local_launch(int size);

/// One rank per process over TCP (Gloo); the store runs on rank 0. Blocks until all ranks appeared.
/// Throws Errc::timeout naming the ranks that are missing.
std::unique_ptr<World> join_processes(const LaunchInfo& launch, const Timeouts& timeouts);

}  // namespace engine::comm
