#include "engine/train/metrics.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <system_error>

#include "engine/core/atomic_file.hpp"
#include "engine/core/error.hpp"
#include "src/core/json.hpp"

namespace engine::train {
namespace {

namespace fs = std::filesystem;
using engine::detail::Json;
using engine::detail::JsonValue;

/// Lines of `path` that belong to steps before `first_step`.
std::string kept_lines(const std::string& path, std::int64_t first_step) {
  std::ifstream file(path, std::ios::binary);
  std::string kept;
  for (std::string line; std::getline(file, line) && !file.eof();) {
    const std::optional<Json> record = Json::try_parse(line, path);
    if (!record || !record->is_object()) continue;
    const std::optional<Json> step = record->find("step");
    if (step && step->find_integer(INT64_MIN, first_step - 1)) kept += line + "\n";
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
  JsonValue json = JsonValue::object({{"step", r.step},
                                      {"loss", r.loss},
                                      {"grad_norm", r.grad_norm},
                                      {"lr", r.lr},
                                      {"tokens", r.tokens},
                                      {"samples", r.samples},
                                      {"targets", r.targets},
                                      {"skipped", r.skipped},
                                      {"step_ms", r.step_ms},
                                      {"tokens_per_s", r.tokens_per_s},
                                      {"mem_peak_bytes", r.mem_peak_bytes},
                                      {"comm_bytes", r.comm_bytes},
                                      {"comm_exposed_ms", r.comm_exposed_ms}});
  if (!r.sample_ids.empty()) json.set("sample_ids", JsonValue::array(r.sample_ids));
  write_line(json.dump() + "\n");
}

void MetricsFile::write_evaluation(std::int64_t step, double eval_loss) {
  write_line(JsonValue::object({{"step", step}, {"eval_loss", eval_loss}}).dump() + "\n");
}

}  // namespace engine::train
