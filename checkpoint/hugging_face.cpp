#include "engine/checkpoint/hugging_face.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <system_error>
#include <utility>

#include "engine/core/atomic_file.hpp"
#include "engine/core/error.hpp"
#include "src/core/json.hpp"
#include "src/core/text.hpp"

namespace engine::checkpoint {

namespace {

namespace fs = std::filesystem;
using engine::detail::Json;
using engine::detail::printable;

constexpr std::string_view kHead = "lm_head.weight";

std::string_view prefix(nn::Family family) {
  return family == nn::Family::gpt2 ? "transformer." : "model.";
}

std::string_view embedding_name(nn::Family family) {
  return family == nn::Family::gpt2 ? "transformer.wte.weight" : "model.embed_tokens.weight";
}

/// A name as in `expected_tensors`; empty for buffers that hold nothing learned.
std::string canonical_name(nn::Family family, std::string_view stored) {
  constexpr std::string_view kCompiled = "_orig_mod.";
  std::string name;
  for (std::size_t at = stored.find(kCompiled); at != std::string_view::npos;
       at = stored.find(kCompiled)) {
    name += stored.substr(0, at);
    stored.remove_prefix(at + kCompiled.size());
  }
  name += stored;
  constexpr std::array<std::string_view, 3> kBuffers = {".attn.bias", ".attn.masked_bias",
                                                        ".rotary_emb.inv_freq"};
  const std::string_view text = name;
  if (std::any_of(kBuffers.begin(), kBuffers.end(),
                  [&](std::string_view suffix) { return text.ends_with(suffix); })) {
    return "";
  }
  if (!text.starts_with(prefix(family)) && text != kHead) name.insert(0, prefix(family));
  return name;
}

std::string shape_text(std::span<const std::int64_t> dims) {
  return fmt::format("[{}]", fmt::join(dims, ", "));
}

std::string read_text(const fs::path& path) {
  const MappedFile file(path);
  return {reinterpret_cast<const char*>(file.bytes().data()), file.size()};
}

/// Shard names of an index and which tensors it places in each.
std::map<std::string, std::vector<std::string>> read_index(const fs::path& path) {
  const Json json = Json::parse(read_text(path), path.string());
  const Json map = json.at("weight_map");
  std::map<std::string, std::vector<std::string>> shards;
  for (const std::string& tensor : map.keys()) {
    const std::string file = map.at(tensor).string();
    ENGINE_CHECK(
        !file.empty() && file != "." && file != ".." &&
            file.find_first_of(std::string_view("/\\\0", 3)) == std::string::npos,
        Errc::corrupt_data,
        "{}: weight_map puts {} into {}: expected the name of a file in the same directory",
        path.string(), printable(tensor), printable(file));
    shards[file].push_back(tensor);
  }
  ENGINE_CHECK(!shards.empty(), Errc::corrupt_data, "{}: weight_map is empty", path.string());
  return shards;
}

bool equal_values(const SafetensorsFile& a_file, const StoredTensor& a,
                  const SafetensorsFile& b_file, const StoredTensor& b) {
  if (a.shape != b.shape) return false;
  if (a.dtype == b.dtype) {
    const auto x = a_file.data(a.name);
    const auto y = b_file.data(b.name);
    return std::equal(x.begin(), x.end(), y.begin(), y.end());
  }
  constexpr std::int64_t kChunk = 65536;
  std::vector<float> x(kChunk);
  std::vector<float> y(kChunk);
  for (std::int64_t at = 0; at < a.numel(); at += kChunk) {
    const auto n = static_cast<std::size_t>(std::min(kChunk, a.numel() - at));
    a_file.read_f32(a.name, std::span(x).first(n), at);
    b_file.read_f32(b.name, std::span(y).first(n), at);
    if (!std::equal(x.begin(), x.begin() + static_cast<std::ptrdiff_t>(n), y.begin())) return false;
  }
  return true;
}

}  // namespace

HfModel HfModel::open(const fs::path& directory) {
  HfModel model;
  const fs::path config_path = directory / "config.json";
  model.config_ = parse_hugging_face_config(read_text(config_path), config_path);
  model.open_files(directory);
  for (std::size_t i = 0; i < model.files_.size(); ++i) model.add_names(i);
  model.settle_head();
  model.check_tensors(directory);
  return model;
}

void HfModel::open_files(const fs::path& directory) {
  const fs::path single = directory / "model.safetensors";
  const fs::path index = directory / "model.safetensors.index.json";
  std::error_code ignored;
  if (fs::exists(single, ignored)) {
    files_.push_back(SafetensorsFile::open(single));
    return;
  }
  ENGINE_CHECK(fs::exists(index, ignored), Errc::io,
               "no weights in {}: expected model.safetensors or model.safetensors.index.json{}",
               directory.string(),
               fs::exists(directory / "pytorch_model.bin", ignored)
                   ? "; pytorch_model.bin is not read, save the model as safetensors"
                   : "");
  for (const auto& [shard, names] : read_index(index)) {
    const SafetensorsFile& file = files_.emplace_back(SafetensorsFile::open(directory / shard));
    for (const std::string& name : names) {
      ENGINE_CHECK(file.find(name) != nullptr, Errc::corrupt_data,
                   "{}: {} is not in {}, where weight_map puts it", index.string(), printable(name),
                   shard);
    }
    for (const StoredTensor& tensor : file.tensors()) {
      ENGINE_CHECK(std::binary_search(names.begin(), names.end(), tensor.name), Errc::corrupt_data,
                   "{}: holds {}, which weight_map of {} does not put there", file.path().string(),
                   printable(tensor.name), index.filename().string());
    }
  }
}

void HfModel::add_names(std::size_t file) {
  for (const StoredTensor& tensor : files_[file].tensors()) {
    std::string name = canonical_name(config_.family, tensor.name);
    if (name.empty()) continue;
    const auto [place, added] = places_.emplace(std::move(name), Place{file, tensor.name});
    ENGINE_CHECK(added, Errc::corrupt_data, "{}: {} and {} are the same parameter",
                 files_[file].path().string(), printable(place->second.name),
                 printable(tensor.name));
  }
}

void HfModel::settle_head() {
  const auto head = places_.find(kHead);
  config_.tie_embeddings = head == places_.end();
  const auto embedding = places_.find(embedding_name(config_.family));
  if (config_.tie_embeddings || embedding == places_.end()) return;
  if (equal_values(files_[head->second.file], stored(head->second), files_[embedding->second.file],
                   stored(embedding->second))) {
    config_.tie_embeddings = true;
    places_.erase(head);
  }
}

void HfModel::check_tensors(const fs::path& directory) {
  // Before the list is made, as a damaged config could ask for billions of layers.
  ENGINE_CHECK(config_.layers <= static_cast<std::int64_t>(places_.size()), Errc::corrupt_data,
               "{}: config.json has {} layers, the files hold {} tensors", directory.string(),
               config_.layers, places_.size());
  tensors_ = expected_tensors(config_);
  for (const HfTensor& tensor : tensors_) {
    const auto place = places_.find(tensor.name);
    ENGINE_CHECK(place != places_.end(), Errc::corrupt_data, "{}: tensor {} {} is missing",
                 directory.string(), tensor.name, tensor.shape.str());
    const StoredTensor& found = stored(place->second);
    ENGINE_CHECK(std::ranges::equal(found.shape, tensor.shape.dims()), Errc::corrupt_data,
                 "{}: tensor {}: config.json asks for shape {}, got {}",
                 files_[place->second.file].path().string(), printable(found.name),
                 tensor.shape.str(), shape_text(found.shape));
    constexpr std::array<std::string_view, 4> kFloats = {"F32", "BF16", "F16", "F64"};
    ENGINE_CHECK(std::ranges::find(kFloats, found.dtype) != kFloats.end(), Errc::corrupt_data,
                 "{}: tensor {} has type {}: expected F32, BF16, F16 or F64",
                 files_[place->second.file].path().string(), printable(found.name), found.dtype);
  }
  if (places_.size() == tensors_.size()) return;
  std::vector<std::string_view> known;
  for (const HfTensor& tensor : tensors_) known.push_back(tensor.name);
  std::ranges::sort(known);
  for (const auto& [name, place] : places_) {
    ENGINE_CHECK(std::ranges::binary_search(known, name), Errc::corrupt_data,
                 "{}: tensor {} has no place in a {} model of {} layers",
                 files_[place.file].path().string(), printable(place.name),
                 nn::name(config_.family), config_.layers);
  }
}

const StoredTensor& HfModel::stored(const Place& place) const {
  return files_[place.file].at(place.name);
}

void HfModel::read(std::string_view name, std::span<float> out, std::int64_t first) const {
  const auto place = places_.find(name);
  ENGINE_ASSERT(place != places_.end(), "the model has no tensor {}", printable(name));
  files_[place->second.file].read_f32(place->second.name, out, first);
}

void save_hugging_face(const fs::path& directory, const nn::ModelConfig& config,
                       FunctionRef<std::span<const float>(const HfTensor&)> values, DType dtype,
                       std::optional<std::int64_t> end_of_text) {
  std::error_code failed;
  const bool made = fs::create_directories(directory, failed);
  ENGINE_CHECK(!failed, Errc::io, "cannot create directory {}: {}", directory.string(),
               failed.message());
  const fs::path weights = directory / "model.safetensors";
  try {
    const std::vector<HfTensor> tensors = expected_tensors(config);
    std::vector<TensorDeclaration> declared;
    for (const HfTensor& tensor : tensors) declared.push_back({tensor.name, dtype, tensor.shape});
    SafetensorsWriter writer(weights, std::move(declared));
    AtomicFile config_file(directory / "config.json");
    config_file.write(hugging_face_config(config, dtype, end_of_text));
    config_file.sync();
    for (const HfTensor& tensor : tensors) writer.append_f32(tensor.name, values(tensor));
    writer.commit();
    config_file.commit();
  } catch (...) {
    if (made) {
      fs::remove(weights, failed);
      fs::remove(directory, failed);
    }
    throw;
  }
}

}  // namespace engine::checkpoint
