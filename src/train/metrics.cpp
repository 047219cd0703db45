#include "engine/train/metrics.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <system_error>

#include "engine/core/atomic_file.hpp"
#include "engine/core/error.hpp"

namespace engine::train {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

Json number(double value) { return std::isfinite(value) ? Json(value) : Json(nullptr); }

/// Lines of `path` that belong to steps before `first_step`.
std::string kept_lines(const std::string& path, std::int64_t first_step) {
  std::ifstream file(path, std::ios::binary);
  std::string kept;
  for (std::string line; std::getline(file, line) && !file.eof();) {
    const Json json = Json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (!json.is_object() || !json.contains("step") || !json["step"].is_number_integer()) continue;
    if (json["step"].get<std::int64_t>() < first_step) kept += line + "\n";
  }
  return kept;
}

}  // namespace

MetricsFile::MetricsFile(const std::string& path, std::int64_t first_step) : path_(path) {
  std::error_code error;
  if (const fs::path parent = fs::path(path).parent_path(); !parent.empty()) {
    fs::create_directories(parent, error);
    ENGINE_CHECK(!error, Errc::io, "cannot create {}: {}", parent.string(), error.message());
  }
  write_file(path, first_step > 0 ? kept_lines(path, first_step) : std::string());
  fd_ = ::open(path.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC);
  ENGINE_CHECK(fd_ >= 0, Errc::io, "cannot open {}: {}", path,
               std::generic_category().message(errno));
}

MetricsFile::~MetricsFile() { ::close(fd_); }

void MetricsFile::write_line(const std::string& line) {
  std::string_view rest = line;
  while (!rest.empty()) {
    const ssize_t n = ::write(fd_, rest.data(), rest.size());
    if (n < 0 && errno == EINTR) continue;
    ENGINE_CHECK(n > 0, Errc::io, "cannot write {}: {}", path_,
                 std::generic_category().message(errno));
    rest.remove_prefix(static_cast<std::size_t>(n));
  }
}

void MetricsFile::write(const StepRecord& r) {
  Json json = {{"step", r.step},
               {"loss", number(r.loss)},
               {"grad_norm", number(r.grad_norm)},
               {"lr", number(r.lr)},
               {"tokens", r.tokens},
               {"samples", r.samples},
               {"targets", r.targets},
               {"skipped", r.skipped},
               {"step_ms", number(r.step_ms)},
               {"tokens_per_s", number(r.tokens_per_s)},
               {"mem_peak_bytes", r.mem_peak_bytes},
               {"comm_bytes", r.comm_bytes},
               {"comm_exposed_ms", number(r.comm_exposed_ms)}};
  if (!r.sample_ids.empty()) json["sample_ids"] = r.sample_ids;
  write_line(json.dump() + "\n");
}

void MetricsFile::write_evaluation(std::int64_t step, double eval_loss) {
  write_line(Json{{"step", step}, {"eval_loss", number(eval_loss)}}.dump() + "\n");
}

}  // namespace engine::train
