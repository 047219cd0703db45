#include "resume_check.hpp"

#include <fmt/core.h>

#include "engine/core/error.hpp"

namespace engine::train::detail {
namespace {

bool refused(std::string_view key) {
  return (key.starts_with("model.") && key != "model.init" && key != "model.dropout") ||
         key == "batch.sequence_length" || key == "data.order" || key == "train.seed" ||
         key == "optimizer.name";
}

/// Keys that say where and how a run runs, not what it computes.
bool silent(std::string_view key) {
  return key.starts_with("checkpoint.") || key.starts_with("metrics.") ||
         key.starts_with("comm.") || key == "train.threads" || key == "train.steps";
}

}  // namespace

std::string check_resumed_config(const std::string& path, const Config& before,
                                 const Config& after) {
  std::string changed;
  for (const ConfigChange& change : differences(before, after)) {
    ENGINE_CHECK(!refused(change.key), Errc::invalid_argument,
                 "{} = {}, but {} was made with {}: a run cannot go on with another value; set it "
                 "back, or start a new run",
                 change.key, change.after, path, change.before);
    if (!silent(change.key)) {
      changed += fmt::format("{}{} {} -> {}", changed.empty() ? "" : ", ", change.key,
                             change.before, change.after);
    }
  }
  return changed;
}

}  // namespace engine::train::detail
