#include "engine/checkpoint/training_state.hpp"

#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <system_error>

#include "engine/checkpoint/hugging_face.hpp"
#include "engine/checkpoint/safetensors.hpp"
#include "engine/core/atomic_file.hpp"
#include "engine/core/mapped_file.hpp"
#include "engine/core/version.hpp"
#include "src/core/json.hpp"

namespace engine::checkpoint {
namespace {

namespace fs = std::filesystem;
using engine::detail::Json;
using engine::detail::JsonValue;

constexpr std::string_view kFormat = "engine training state";
constexpr int kVersion = 1;
constexpr std::int64_t kMostCount = std::int64_t{1} << 53;

std::string checksum(const fs::path& path) {
  const MappedFile file(path);
  const XXH128_hash_t h = XXH3_128bits(file.bytes().data(), file.bytes().size());
  return fmt::format("{:016x}{:016x}", h.high64, h.low64);
}

std::string moment_tensor(const std::string& parameter, const std::string& moment) {
  return parameter + "/" + moment;
}

/// A temporary directory beside the final one; removed unless it was renamed.
class StagedDirectory {
 public:
  explicit StagedDirectory(const fs::path& final_path)
      : final_(final_path), path_(final_path.string() + ".tmp-" + std::to_string(::getpid())) {
    std::error_code error;
    if (final_.has_parent_path()) fs::create_directories(final_.parent_path(), error);
    ENGINE_CHECK(!error, Errc::io, "cannot create {}: {}", final_.parent_path().string(),
                 error.message());
    fs::remove_all(path_, error);
    fs::create_directory(path_, error);
    ENGINE_CHECK(!error, Errc::io, "cannot create {}: {}", path_.string(), error.message());
  }
  ~StagedDirectory() {
    std::error_code ignored;
    if (!path_.empty()) fs::remove_all(path_, ignored);
  }
  StagedDirectory(const StagedDirectory&) = delete;
  StagedDirectory& operator=(const StagedDirectory&) = delete;

  const fs::path& path() const noexcept { return path_; }
  void commit() {
    sync_directory(path_);
    std::error_code error;
    fs::rename(path_, final_, error);
    ENGINE_CHECK(!error, Errc::io, "cannot rename {} to {}: {}", path_.string(), final_.string(),
                 error.message());
    path_.clear();
    sync_directory(final_.has_parent_path() ? final_.parent_path() : fs::path("."));
  }

 private:
  fs::path final_;
  fs::path path_;
};

/// Calls `visit(name, parameter index)` for each parameter of a unit.
template <class Visit>
void each_parameter(const parallel::Unit& unit, Visit&& visit) {
  for (int i = 0; i < unit.layout().entries(); ++i) {
    visit(unit.parameters()[static_cast<std::size_t>(i)]->name(), i);
  }
}

std::span<const std::byte> bytes_of(const Tensor& t) {
  return {static_cast<const std::byte*>(t.raw()), t.bytes()};
}

/// One file of tensors that are gathered a unit at a time. Ranks that do not write take part in the
/// gathers.
class StateFile {
 public:
  StateFile(comm::Communicator& shards, bool writes) : shards_(&shards), writes_(writes) {}

  void declare(const std::string& name, DType dtype, const Shape& shape) {
    if (writes_) tensors_.push_back({name, dtype, shape});
  }
  void open(const fs::path& path) {
    if (writes_) writer_.emplace(path, std::move(tensors_));
  }
  /// The parameters of a flat state under the names that `name_of` gives them.
  template <class NameOf>
  void write(const parallel::Unit& unit, const Tensor& state, NameOf&& name_of) {
    const Tensor whole = unit.whole(state, *shards_);
    if (!writes_) return;
    each_parameter(unit, [&](const std::string& name, int i) {
      writer_->append(name_of(name), bytes_of(unit.part(whole, i)));
    });
  }
  void commit() {
    if (writes_) writer_->commit();
  }

 private:
  comm::Communicator* shards_;
  bool writes_;
  std::vector<TensorDeclaration> tensors_;
  std::optional<SafetensorsWriter> writer_;
};

void write_weights(StateFile file, const fs::path& path, std::span<const parallel::Unit> units) {
  for (const parallel::Unit& unit : units) {
    each_parameter(unit, [&](const std::string& name, int i) {
      file.declare(name, DType::f32, unit.parameters()[static_cast<std::size_t>(i)]->shape());
    });
  }
  file.open(path);
  for (const parallel::Unit& unit : units) {
    file.write(unit, unit.master(), [](const std::string& name) { return name; });
  }
  file.commit();
}

void write_moments(StateFile file, const fs::path& path, std::span<const parallel::Unit> units,
                   const std::vector<std::string>& moments) {
  for (const parallel::Unit& unit : units) {
    for (int k = 0; k < unit.moments(); ++k) {
      each_parameter(unit, [&](const std::string& name, int i) {
        file.declare(moment_tensor(name, moments[static_cast<std::size_t>(k)]),
                     unit.moment(k).dtype(),
                     unit.parameters()[static_cast<std::size_t>(i)]->shape());
      });
    }
  }
  file.open(path);
  for (const parallel::Unit& unit : units) {
    for (int k = 0; k < unit.moments(); ++k) {
      file.write(unit, unit.moment(k), [&](const std::string& name) {
        return moment_tensor(name, moments[static_cast<std::size_t>(k)]);
      });
    }
  }
  file.commit();
}

/// Reads what of the unit's parameters lies in its flat state.
template <class NameOf>
void read_state(const SafetensorsFile& file, const parallel::Unit& unit, const Tensor& state,
                NameOf&& name_of) {
  each_parameter(unit, [&](const std::string& parameter, int i) {
    const StoredTensor& stored = file.at(name_of(parameter));
    const Shape shape{std::span<const std::int64_t>(stored.shape)};
    const Shape& expected = unit.parameters()[static_cast<std::size_t>(i)]->shape();
    ENGINE_CHECK(shape == expected, Errc::corrupt_data,
                 "{}: tensor {} has shape {}, the model expects {}", file.path().string(),
                 stored.name, shape.str(), expected.str());
  });
  std::vector<float> values;
  for (const parallel::ShardPiece& piece : unit.pieces()) {
    const std::string name =
        name_of(unit.parameters()[static_cast<std::size_t>(piece.entry)]->name());
    const Tensor out = state.slice(0, piece.shard_begin, piece.shard_begin + piece.numel);
    if (out.dtype() == DType::f32) {
      file.read_f32(name, out.span<float>(), piece.entry_begin);
      continue;
    }
    values.resize(static_cast<std::size_t>(piece.numel));
    file.read_f32(name, values, piece.entry_begin);
    std::transform(values.begin(), values.end(), out.span<bf16>().begin(),
                   [](float v) { return bf16(v); });
  }
}

std::string_view text_of(const MappedFile& file) {
  return {reinterpret_cast<const char*>(file.bytes().data()), file.size()};
}

}  // namespace

std::vector<TextFile> read_folder(const fs::path& folder) {
  std::vector<TextFile> files;
  std::error_code error;
  if (!fs::is_directory(folder, error)) return files;
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (!entry.is_regular_file()) continue;
    const MappedFile file(entry.path());
    files.push_back({entry.path().filename().string(), std::string(text_of(file))});
  }
  return files;
}

std::string checkpoint_name(std::int64_t step) { return fmt::format("step-{:08}", step); }

void save_training_state(const fs::path& directory, const RunInfo& info,
                         std::span<const parallel::Unit> units,
                         const std::vector<std::string>& moment_names, comm::Communicator& shards,
                         bool writes) {
  const bool trains = !units.empty() && units.front().trains();
  if (!writes) {
    write_weights({shards, false}, {}, units);
    if (trains) write_moments({shards, false}, {}, units, moment_names);
    return;
  }
  ENGINE_CHECK(!fs::exists(directory), Errc::invalid_argument,
               "{} exists already: choose another directory", directory.string());
  StagedDirectory staged(directory);
  std::vector<std::string> files = {"model.safetensors"};
  write_weights({shards, true}, staged.path() / files[0], units);
  if (trains) {
    files.emplace_back("optimizer.safetensors");
    write_moments({shards, true}, staged.path() / files.back(), units, moment_names);
  }
  if (info.model) {
    files.emplace_back("config.json");
    write_file(staged.path() / files.back(), hugging_face_config(*info.model, DType::f32));
  }
  if (!info.tokenizer.empty()) {
    std::error_code error;
    fs::create_directory(staged.path() / "tokenizer", error);
    ENGINE_CHECK(!error, Errc::io, "cannot create {}: {}", (staged.path() / "tokenizer").string(),
                 error.message());
  }
  for (const TextFile& file : info.tokenizer) {
    files.push_back("tokenizer/" + file.name);
    write_file(staged.path() / files.back(), file.contents);
  }
  JsonValue list = JsonValue::array();
  for (const std::string& name : files) {
    const fs::path path = staged.path() / name;
    list.push(JsonValue::object(
        {{"name", name}, {"bytes", fs::file_size(path)}, {"xxh3_128", checksum(path)}}));
  }
  const JsonValue manifest = JsonValue::object({{"format", kFormat},
                                                {"version", kVersion},
                                                {"engine", version_string()},
                                                {"step", info.step},
                                                {"consumed_samples", info.consumed_samples},
                                                {"tokens", info.tokens},
                                                {"optimizer_steps", info.optimizer_steps},
                                                {"seed", info.seed},
                                                {"optimizer", info.optimizer},
                                                {"config", info.config},
                                                {"files", list}});
  write_file(staged.path() / "manifest.json", manifest.dump(1) + "\n");
  staged.commit();
}

RunInfo read_run_info(const fs::path& directory) {
  const fs::path path = directory / "manifest.json";
  const MappedFile file(path);
  const Json json = Json::parse(text_of(file), path.string());
  ENGINE_CHECK(
      json.at("format").string() == kFormat && json.at("version").integer(0, INT32_MAX) == kVersion,
      Errc::corrupt_data, "{}: not a training state of version {}", path.string(), kVersion);
  RunInfo info;
  const auto count = [&](const char* key) { return json.at(key).integer(0, kMostCount); };
  info.step = count("step");
  info.consumed_samples = count("consumed_samples");
  info.tokens = count("tokens");
  info.optimizer_steps = count("optimizer_steps");
  info.seed = count("seed");
  info.optimizer = json.at("optimizer").string();
  info.config = json.at("config").string();
  for (const Json& entry : json.at("files").elements()) {
    const std::string name = entry.at("name").string();
    ENGINE_CHECK(name.find("..") == std::string::npos && !name.starts_with('/'), Errc::corrupt_data,
                 "{}: file name \"{}\" leaves the directory", path.string(), name);
    ENGINE_CHECK(fs::is_regular_file(directory / name), Errc::corrupt_data,
                 "{} is missing: {} names it", (directory / name).string(), path.string());
    ENGINE_CHECK(checksum(directory / name) == entry.at("xxh3_128").string(), Errc::corrupt_data,
                 "{}: its checksum differs from the manifest's: the file was damaged or changed",
                 (directory / name).string());
  }
  if (fs::exists(directory / "config.json")) {
    const MappedFile config(directory / "config.json");
    info.model = parse_hugging_face_config(text_of(config), config.path());
  }
  info.tokenizer = read_folder(directory / "tokenizer");
  return info;
}

void load_training_state(const fs::path& directory, std::span<parallel::Unit> units,
                         const std::vector<std::string>& moment_names) {
  const SafetensorsFile weights = SafetensorsFile::open(directory / "model.safetensors");
  std::size_t expected = 0;
  for (const parallel::Unit& unit : units) expected += unit.parameters().size();
  ENGINE_CHECK(weights.tensors().size() == expected, Errc::corrupt_data,
               "{} holds {} tensors, the model has {} parameters: it is of another model",
               weights.path().string(), weights.tensors().size(), expected);
  for (const parallel::Unit& unit : units) {
    read_state(weights, unit, unit.master(), [](const std::string& name) { return name; });
  }
  if (units.empty() || !units.front().trains()) return;
  const SafetensorsFile moments = SafetensorsFile::open(directory / "optimizer.safetensors");
  for (const parallel::Unit& unit : units) {
    for (int k = 0; k < unit.moments(); ++k) {
      read_state(moments, unit, unit.moment(k), [&](const std::string& name) {
        return moment_tensor(name, moment_names[static_cast<std::size_t>(k)]);
      });
    }
  }
}

std::vector<fs::path> list_checkpoints(const fs::path& root) {
  std::vector<std::pair<std::int64_t, fs::path>> found;
  if (fs::is_directory(root)) {
    for (const auto& entry : fs::directory_iterator(root)) {
      const std::string name = entry.path().filename().string();
      if (!name.starts_with("step-") || !fs::exists(entry.path() / "manifest.json")) continue;
      std::int64_t step = 0;
      const char* end = name.data() + name.size();
      if (std::from_chars(name.data() + 5, end, step).ptr == end)
        found.emplace_back(step, entry.path());
    }
  }
  std::sort(found.begin(), found.end());
  std::vector<fs::path> paths;
  for (auto& [step, path] : found) paths.push_back(std::move(path));
  return paths;
}

}  // namespace engine::checkpoint
