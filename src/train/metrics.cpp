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

/// Step of a record, or nothing if the line is none.
std::optional<std::int64_t> step_of(const std::string& line, const std::string& path) {
  const std::optional<Json> record = Json::try_parse(line, path);
  if (!record || !record->is_object()) return std::nullopt;
  const std::optional<Json> step = record->find("step");
  return step ? step->find_integer(0, INT64_MAX) : std::nullopt;
}

/// The whole lines of `path` without the records at or past `first_step`.
std::string kept_lines(const std::string& path, std::int64_t first_step) {
  std::ifstream file(path, std::ios::binary);
  std::string kept;
  for (std::string line; std::getline(file, line) && !file.eof();) {
    if (step_of(line, path).value_or(-1) < first_step) kept += line + "\n";
  }
  return kept;
}

/// Makes way for a fresh run's records: those of an earlier run are kept as NAME.previous, and what
/// is no metrics file is not touched.
void set_earlier_records_aside(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string line;
  if (!std::getline(file, line)) return;  // absent or empty
  ENGINE_CHECK(step_of(line, path).has_value(), Errc::invalid_argument,
               "metrics.jsonl = {}: the file exists and holds no metrics: choose another name",
               path);
  std::error_code error;
  fs::rename(path, path + ".previous", error);
  ENGINE_CHECK(!error, Errc::io, "cannot rename {} to {}.previous: {}", path, path,
               error.message());
}

}  // namespace

MetricsFile::MetricsFile(const std::string& path, std::int64_t first_step) : path_(path) {
  std::error_code error;
  if (const fs::path parent = fs::path(path).parent_path(); !parent.empty()) {
    fs::create_directories(parent, error);
    ENGINE_CHECK(!error, Errc::io, "cannot create {}: {}", parent.string(), error.message());
  }
  const fs::file_status status = fs::symlink_status(path, error);
  if (fs::is_regular_file(status)) {  // devices, pipes and links are written to as they are
    if (first_step == 0) {
      set_earlier_records_aside(path);
    } else {
      write_file(path, kept_lines(path, first_step));
    }
  }
  fd_ = ::open(path.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666);
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
