#include "engine/data/meta.hpp"

#include "engine/core/mapped_file.hpp"
#include "src/core/json.hpp"
#include "src/data/paths.hpp"

namespace engine::data {

std::optional<DataMeta> read_meta(const std::filesystem::path& token_file) {
  using engine::detail::Json;
  const std::filesystem::path folder = token_file.parent_path();
  const std::filesystem::path path = folder / "meta.json";
  if (!detail::exists(path)) return std::nullopt;
  const MappedFile file(path);
  const Json json =
      Json::parse({reinterpret_cast<const char*>(file.bytes().data()), file.size()}, path.string());
  if (!json.is_object()) return std::nullopt;  // somebody else's meta.json
  const std::optional<Json> files = json.find("files");
  if (!files || !files->is_object()) return std::nullopt;
  const std::optional<Json> entry = files->find(token_file.filename().string());
  if (!entry) return std::nullopt;
  DataMeta meta;
  meta.tokenizer = json.at("tokenizer").string();
  meta.identity = json.at("tokenizer_identity").string();
  meta.vocab_size = json.at("vocab_size").integer(1, INT32_MAX);
  meta.format = json.at("format").string();
  meta.tokens = entry->at("tokens").integer(0, INT64_MAX);
  if (const auto end = json.find("end_of_text")) {
    meta.end_of_text = static_cast<std::int32_t>(end->integer(0, INT32_MAX));
  }
  if (detail::exists(folder / "tokenizer")) meta.tokenizer_directory = folder / "tokenizer";
  return meta;
}

}  // namespace engine::data
