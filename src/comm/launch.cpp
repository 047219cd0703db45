#include "engine/comm/launch.hpp"

#include <unistd.h>

#include <charconv>
#include <cstdlib>
#include <string_view>

#include "engine/core/error.hpp"
#include "socket.hpp"

namespace engine::comm {
namespace {

constexpr int kMostRanks = 1 << 20;

/// Reads the variables of one launcher.
class Environment {
 public:
  explicit Environment(const std::function<const char*(const char*)>& read) : read_(read) {}

  bool has(const char* name) const { return get(name) != nullptr; }
  std::string text(const char* name) const { return has(name) ? get(name) : ""; }

  /// Throws Errc::invalid_argument unless the variable is an integer in [least, most].
  int integer(const char* name, int least, int most) const {
    ENGINE_CHECK(
        has(name), Errc::invalid_argument,
        "the launcher's variable {} is not set: set it, or unset the others to run without a "
        "launcher",
        name);
    const std::string_view value = get(name);
    int number = 0;
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
    ENGINE_CHECK(error == std::errc() && end == value.data() + value.size() && number >= least &&
                     number <= most,
                 Errc::invalid_argument, "{} = \"{}\": expected an integer from {} to {}", name,
                 value, least, most);
    return number;
  }

 private:
  const char* get(const char* name) const { return read_ ? read_(name) : std::getenv(name); }
  const std::function<const char*(const char*)>& read_;
};

/// The first host of a Slurm list: "n[03-05,9],m1" gives "n03".
std::string first_host(const std::string& list) {
  const std::size_t bracket = list.find('[');
  const std::size_t comma = list.find(',');
  if (bracket == std::string::npos || comma < bracket) return list.substr(0, comma);
  const std::size_t end = list.find_first_of(",-]", bracket + 1);
  const std::size_t close = list.find(']', bracket);
  if (end == std::string::npos || close == std::string::npos) return list;
  const std::size_t next = list.find(',', close);
  return list.substr(0, bracket) + list.substr(bracket + 1, end - bracket - 1) +
         list.substr(close + 1, next == std::string::npos ? next : next - close - 1);
}

/// Where rank 0 listens, if MASTER_ADDR and MASTER_PORT do not say.
void find_master(const Environment& env, LaunchInfo& info, const std::string& host, int port) {
  info.master_host = env.has("MASTER_ADDR") ? env.text("MASTER_ADDR") : host;
  info.master_port = env.has("MASTER_PORT") ? env.integer("MASTER_PORT", 1, 65535) : port;
  ENGINE_CHECK(
      !info.master_host.empty(), Errc::invalid_argument,
      "{} started {} processes but does not say where rank 0 is: set MASTER_ADDR to its host",
      info.launcher, info.world_size);
  ENGINE_CHECK(info.master_port > 0, Errc::invalid_argument,
               "{} started {} processes but does not say where rank 0 listens: set MASTER_PORT",
               info.launcher, info.world_size);
}

LaunchInfo place(const Environment& env, const char* launcher, const char* rank, const char* size,
                 const char* local_rank) {
  LaunchInfo info;
  info.launcher = launcher;
  info.world_size = env.integer(size, 1, kMostRanks);
  info.rank = env.integer(rank, 0, info.world_size - 1);
  info.local_rank = env.has(local_rank) ? env.integer(local_rank, 0, kMostRanks) : info.rank;
  return info;
}

/// A port that the processes of a job agree on without talking.
int job_port(const std::string& job) {
  return 20000 + static_cast<int>(std::hash<std::string>{}(job) % 20000);
}

}  // namespace

std::optional<LaunchInfo> detect_launch(const std::function<const char*(const char*)>& read) {
  const Environment env(read);
  if (env.has("RANK") || env.has("WORLD_SIZE")) {
    LaunchInfo info = place(env, "torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK");
    // Other launchers bind their processes to CPUs of their own.
    if (env.has("LOCAL_WORLD_SIZE")) {
      info.local_size = env.integer("LOCAL_WORLD_SIZE", 1, info.world_size);
    }
    if (info.world_size > 1) find_master(env, info, "", 0);
    return info;
  }
  // Inside an allocation, but not started by srun, a process is on its own.
  if (env.has("SLURM_PROCID") && env.has("SLURM_NTASKS") && env.has("SLURM_STEP_ID") &&
      env.text("SLURM_NTASKS") != "1") {
    LaunchInfo info = place(env, "slurm", "SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID");
    std::string list = env.text("SLURM_STEP_NODELIST");
    if (list.empty()) list = env.text("SLURM_JOB_NODELIST");
    find_master(env, info, first_host(list),
                job_port(env.text("SLURM_JOB_ID") + "." + env.text("SLURM_STEP_ID")));
    return info;
  }
  if (env.has("OMPI_COMM_WORLD_RANK")) {
    LaunchInfo info = place(env, "openmpi", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
                            "OMPI_COMM_WORLD_LOCAL_RANK");
    const bool local = env.text("OMPI_COMM_WORLD_LOCAL_SIZE") == env.text("OMPI_COMM_WORLD_SIZE");
    const std::string job = env.text("PMIX_NAMESPACE") + env.text("OMPI_MCA_ess_base_jobid");
    if (info.world_size > 1) {
      find_master(env, info, local ? "127.0.0.1" : "", job.empty() ? 0 : job_port(job));
    }
    return info;
  }
  if (env.has("PMI_RANK")) {
    LaunchInfo info = place(env, "pmi", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID");
    const bool local = env.text("MPI_LOCALNRANKS") == env.text("PMI_SIZE");
    const std::string job = env.text("PMI_PORT") + env.text("HYDI_CONTROL_FD");
    // All processes of a host have the same parent: mpiexec's proxy.
    if (info.world_size > 1) {
      find_master(env, info, local ? "127.0.0.1" : "",
                  local ? job_port(fmt::format("{} {}", job, ::getppid())) : 0);
    }
    return info;
  }
  return std::nullopt;
}

LaunchInfo local_launch(int size) {
  LaunchInfo info;
  info.world_size = size;
  info.master_host = "127.0.0.1";
  info.master_port = detail::port_of(detail::listen_on(0));
  info.launcher = "threads";
  return info;
}

}  // namespace engine::comm
