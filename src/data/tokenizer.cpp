#include "engine/data/tokenizer.hpp"

#include <xxhash.h>

#include <system_error>

#include "engine/core/atomic_file.hpp"
#include "engine/core/error.hpp"
#include "engine/core/mapped_file.hpp"
#include "src/core/json.hpp"
#include "src/data/paths.hpp"
#include "src/data/tokenizers.hpp"

namespace engine::data {
namespace {

using engine::detail::Json;
using engine::detail::JsonValue;

constexpr const char* kInfoFile = "tokenizer_info.json";
constexpr const char* kModelFile = "tokenizer.model";

/// Each file counts with its length, so that no two lists of files look alike.
std::string identity_of(std::string_view name, std::span<const TokenizerFile> files) {
  std::string all(name);
  for (const TokenizerFile& file : files) {
    const std::uint64_t size = file.contents.size();
    all.append(reinterpret_cast<const char*>(&size), sizeof(size));
    all += file.contents;
  }
  const XXH128_hash_t hash = XXH3_128bits(all.data(), all.size());
  return fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
}

std::shared_ptr<const Tokenizer> load_saved(const std::filesystem::path& directory) {
  const std::string where = (directory / kInfoFile).string();
  const std::string text = detail::read_text(directory / kInfoFile, 1 << 20);
  const std::optional<Json> info = Json::try_parse(text, where);
  ENGINE_CHECK(info && info->is_object() && info->find("name") && info->find("identity"),
               Errc::corrupt_data, "{}: expected an object with name and identity", where);
  const std::string& name = info->at("name").string();
  std::shared_ptr<const Tokenizer> tokenizer;
  if (name == "bytes") tokenizer = detail::make_byte_tokenizer();
  if (name == "gpt2") tokenizer = detail::make_gpt2_tokenizer(directory);
  if (name == "sentencepiece") {
    tokenizer = detail::make_sentencepiece_tokenizer(directory / kModelFile);
  }
  ENGINE_CHECK(tokenizer != nullptr, Errc::corrupt_data,
               "{}: name: expected bytes, gpt2 or sentencepiece", where);
  ENGINE_CHECK(info->at("identity").string() == tokenizer->identity(), Errc::corrupt_data,
               "{}: the files beside it are not the ones that were saved: their identity is {}",
               where, tokenizer->identity());
  return tokenizer;
}

/// `vocab.json` and `merges.txt` are written by models with other split rules too.
void check_tokenizer_class(const std::filesystem::path& directory) {
  const auto path = directory / "tokenizer_config.json";
  if (!detail::exists(path)) return;
  const auto config = Json::try_parse(detail::read_text(path, 64 << 20), path.string());
  ENGINE_CHECK(config && config->is_object(), Errc::corrupt_data, "{}: expected a JSON object",
               path.string());
  const auto found = config->find("tokenizer_class");
  if (!found || found->kind() != Json::Kind::string) return;
  const std::string& kind = found->string();
  ENGINE_CHECK(kind == "GPT2Tokenizer" || kind == "GPT2TokenizerFast", Errc::invalid_argument,
               "{}: tokenizer_class {} is not supported: expected GPT2Tokenizer, or a "
               "tokenizer.model of SentencePiece",
               path.string(), kind);
}

}  // namespace

Tokenizer::Tokenizer(std::string_view name, std::vector<TokenizerFile> files)
    : name_(name), files_(std::move(files)), identity_(identity_of(name_, files_)) {}

void Tokenizer::check_ids(std::span<const std::int32_t> ids) const {
  for (std::size_t i = 0; i < ids.size(); ++i) {
    ENGINE_CHECK(ids[i] >= 0 && ids[i] < vocab_size(), Errc::invalid_argument,
                 "cannot decode token {}: expected an id in [0, {}) of the {} vocabulary, got {}",
                 i, vocab_size(), name_, ids[i]);
  }
}

void Tokenizer::save(const std::filesystem::path& directory) const {
  std::error_code error;
  std::filesystem::create_directories(directory, error);
  ENGINE_CHECK(!error, Errc::io, "cannot create {}: {}", directory.string(), error.message());
  for (const TokenizerFile& file : files_) write_file(directory / file.name, file.contents);
  const JsonValue info = JsonValue::object({{"identity", identity_}, {"name", name_}});
  write_file(directory / kInfoFile, info.dump(2) + "\n");
}

std::string detail::read_text(const std::filesystem::path& path, std::size_t limit_bytes) {
  const MappedFile file(path);
  ENGINE_CHECK(file.size() <= limit_bytes, Errc::corrupt_data,
               "{}: expected at most {} bytes, got {}", path.string(), limit_bytes, file.size());
  return {reinterpret_cast<const char*>(file.bytes().data()), file.size()};
}

std::shared_ptr<const Tokenizer> make_tokenizer(std::string_view text) {
  if (text == "bytes") return detail::make_byte_tokenizer();
  const std::size_t colon = text.find(':');
  const std::string_view kind = text.substr(0, colon);
  const std::string_view where =
      colon == std::string_view::npos ? std::string_view() : text.substr(colon + 1);
  if (kind == "gpt2" && !where.empty()) {
    check_tokenizer_class(where);
    return detail::make_gpt2_tokenizer(where);
  }
  if (kind == "sentencepiece" && !where.empty()) return detail::make_sentencepiece_tokenizer(where);
  ENGINE_FAIL(Errc::invalid_argument,
              "tokenizer: expected bytes, gpt2:DIR or sentencepiece:FILE, got \"{}\"", text);
}

std::shared_ptr<const Tokenizer> load_tokenizer(const std::filesystem::path& directory) {
  if (detail::exists(directory / kInfoFile)) return load_saved(directory);
  if (detail::exists(directory / kModelFile)) {
    return detail::make_sentencepiece_tokenizer(directory / kModelFile);
  }
  ENGINE_CHECK(detail::has_gpt2_files(directory), Errc::invalid_argument,
               "{}: found no tokenizer: expected a folder written by prepare, tokenizer.model, "
               "tokenizer.json, vocab.json and merges.txt, or encoder.json and vocab.bpe",
               directory.string());
  check_tokenizer_class(directory);
  return detail::make_gpt2_tokenizer(directory);
}

}  // namespace engine::data
