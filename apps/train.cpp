// train: runs a training config.
#include <malloc.h>

#include <atomic>
#include <csignal>
#include <limits>

#include "command.hpp"
#include "engine/train/config.hpp"
#include "engine/train/run_plan.hpp"
#include "engine/train/trainer.hpp"

namespace {

constexpr int kStoppedEarly = 75;

// Signal handlers reach nothing but objects of static storage.
std::atomic<bool> stop_requested{false};

void request_stop(int signal) {
  // A second Ctrl-C leaves at once. A second SIGTERM does not: `timeout` and batch systems send it
  // to the process and to its group.
  if (stop_requested.exchange(true) && signal == SIGINT) {
    std::signal(signal, SIG_DFL);
    std::raise(signal);
  }
}

}  // namespace

int main(int argc, char** argv) {
  using namespace engine;
  // Memory that libraries free stays with the process: on common virtual machines fresh pages cost
  // more than the work done in them.
  mallopt(M_MMAP_THRESHOLD, 1 << 30);
  mallopt(M_TRIM_THRESHOLD, 1 << 30);

  apps::Command command(
      "train",
      "Trains a GPT as a TOML config says.\n\n"
      "SIGINT, SIGTERM or SIGHUP: finishes the step, saves a checkpoint, exits with 75.");
  std::string config_path;
  std::vector<std::string> sets;
  std::string resume = "none";
  train::TrainOptions options;
  bool dry_run = false;
  bool print_config = false;
  bool reference = false;
  constexpr int kNotGiven = std::numeric_limits<int>::min();
  int threads = kNotGiven;
  command.option("CONFIG", config_path, "Config file (docs/config.md)");
  command.option("--set", sets, "Override a key: --set train.steps=10; a bare word is a string")
      .repeatable("KEY=VALUE");
  command
      .option("--resume", resume,
              "auto (newest checkpoint that verifies), none, or a checkpoint directory")
      .show_default();
  command.flag("--dry-run", dry_run, "Check the config; print program and predicted memory; stop");
  command.flag("--print-config", print_config, "Print the resolved config and stop");
  command.flag("--config-reference", reference, "Print docs/config.md and stop");
  command.option("--profile", options.profile_steps,
                 "Time every operator over this many steps, print a table and stop; saves nothing");
  command.option("--trace", options.trace,
                 "Write a Perfetto trace of the first steps to this file");
  command.option("--threads", threads, "CPU threads, as train.threads");

  return command.run(argc, argv, [&] {
    if (reference) {
      fmt::print("{}", train::config_reference());
      return 0;
    }
    ENGINE_CHECK(!config_path.empty(), Errc::invalid_argument,
                 "CONFIG is required; see train --help");
    std::vector<std::pair<std::string, std::string>> overrides;
    for (const std::string& set : sets) overrides.push_back(train::parse_override(set));
    if (threads != kNotGiven) overrides.emplace_back("train.threads", std::to_string(threads));
    const train::RunPlan plan = train::resolve(train::load_config(config_path, overrides));
    if (print_config) {
      fmt::print("{}", train::to_toml(plan.config));
      return 0;
    }
    if (dry_run) {
      fmt::print("{}", train::describe(plan));
      return 0;
    }
    options.resume = train::ResumeMode::parse(resume);
    options.quiet = command.quiet();
    options.stop = &stop_requested;
    std::signal(SIGINT, request_stop);
    std::signal(SIGTERM, request_stop);
    std::signal(SIGHUP, request_stop);
    return train::train(plan, options) == train::Outcome::stopped ? kStoppedEarly : 0;
  });
}
