#include "engine/data/prepare.hpp"

#include <xxhash.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>
#include <system_error>

#include "engine/core/atomic_file.hpp"
#include "engine/core/error.hpp"
#include "engine/core/mapped_file.hpp"
#include "engine/data/tokenizer.hpp"
#include "src/core/json.hpp"
#include "src/data/documents.hpp"
#include "src/data/paths.hpp"

namespace engine::data {
namespace {

namespace fs = std::filesystem;
using engine::detail::JsonValue;

constexpr std::int32_t kLargestU16Vocabulary = 65536;

struct FreeHash {
  void operator()(XXH3_state_t* state) const { XXH3_freeState(state); }
};

std::string hex(XXH128_hash_t hash) {
  return fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
}

/// One file of tokens on its way to disk.
class TokenWriter {
 public:
  TokenWriter(const fs::path& path, bool wide)
      : file_(path), wide_(wide), hash_(XXH3_createState()) {
    ENGINE_ASSERT(hash_ != nullptr && XXH3_128bits_reset(hash_.get()) == XXH_OK,
                  "xxhash has no memory");
  }

  void write(std::span<const std::int32_t> ids) {
    tokens_ += static_cast<std::int64_t>(ids.size());
    if (wide_) {
      write_bytes(std::as_bytes(ids));
    } else {
      narrow_.resize(ids.size());
      std::ranges::transform(ids, narrow_.begin(),
                             [](std::int32_t id) { return static_cast<std::uint16_t>(id); });
      write_bytes(std::as_bytes(std::span(narrow_)));
    }
  }

  std::int64_t tokens() const noexcept { return tokens_; }
  void finish() { file_.finish(); }
  void commit() { file_.commit(); }

  JsonValue meta() const {
    return JsonValue::object(
        {{"tokens", tokens_}, {"xxh3_128", hex(XXH3_128bits_digest(hash_.get()))}});
  }

 private:
  void write_bytes(std::span<const std::byte> bytes) {
    XXH3_128bits_update(hash_.get(), bytes.data(), bytes.size());
    file_.write(bytes);
  }

  AtomicFile file_;
  bool wide_;
  std::unique_ptr<XXH3_state_t, FreeHash> hash_;
  std::vector<std::uint16_t> narrow_;
  std::int64_t tokens_ = 0;
};

/// Which part of the documents is for validation, see `prepare`.
class ValidationRule {
 public:
  ValidationRule(double fraction, std::int64_t documents)
      : fraction_(fraction), documents_(documents) {
    const double wanted = fraction * static_cast<double>(documents);
    if (wanted >= 1) whole_ = std::min<std::int64_t>(std::llround(wanted), documents - 1);
  }

  std::int64_t whole_documents() const noexcept { return whole_; }

  /// Bytes at the start of document `index` that are for training; the others are not.
  std::size_t training_bytes(std::int64_t index, std::string_view text) const {
    if (fraction_ == 0) return text.size();
    if (whole_ > 0) {
      const auto share = [&](std::int64_t i) {  // of the first i documents
        return static_cast<std::int64_t>(static_cast<__int128>(i) * whole_ / documents_);
      };
      return share(index + 1) > share(index) ? 0 : text.size();
    }
    const std::size_t cut = std::min(
        static_cast<std::size_t>(static_cast<double>(text.size()) * (1 - fraction_)), text.size());
    std::size_t start = cut;
    const auto continues = [&](std::size_t i) {
      return i < text.size() && (static_cast<unsigned char>(text[i]) & 0xC0U) == 0x80U;
    };
    while (start > 0 && cut - start < 3 && continues(start)) --start;
    return continues(start) ? cut : start;  // no character is longer than 4 bytes
  }

 private:
  double fraction_;
  std::int64_t documents_;
  std::int64_t whole_ = 0;
};

void check(const PrepareOptions& options) {
  ENGINE_CHECK(!options.inputs.empty(), Errc::invalid_argument, "prepare: expected an input file");
  ENGINE_CHECK(!options.out.empty(), Errc::invalid_argument, "--out is empty: expected a folder");
  ENGINE_CHECK(options.val_fraction >= 0 && options.val_fraction < 1, Errc::invalid_argument,
               "--val-fraction = {}: expected a value in [0, 1)", options.val_fraction);
  for (const fs::path& input : options.inputs) {
    for (const char* packed : {".gz", ".zst", ".xz", ".bz2", ".zip", ".parquet", ".arrow"}) {
      ENGINE_CHECK(input.extension() != packed, Errc::invalid_argument,
                   "{}: {} files are not supported: unpack or convert it to text or .jsonl first",
                   input.string(), packed);
    }
  }
  for (const fs::path& input : options.inputs) {
    for (const char* output : {"train.bin", "val.bin", "meta.json"}) {
      std::error_code ignored;
      ENGINE_CHECK(!fs::equivalent(input, options.out / output, ignored), Errc::invalid_argument,
                   "{} is an input and would be replaced: take another --out", input.string());
    }
  }
  ENGINE_CHECK(options.force || !detail::exists(options.out / "train.bin"), Errc::invalid_argument,
               "{} exists: take another --out, or --force to replace it",
               (options.out / "train.bin").string());
}

JsonValue make_meta(const PrepareOptions& options, const Tokenizer& tokenizer, bool wide,
                    const PrepareResult& result, const JsonValue& files) {
  JsonValue tokenizer_files = JsonValue::object();
  for (const TokenizerFile& file : tokenizer.files()) {
    tokenizer_files.set(file.name, hex(XXH3_128bits(file.contents.data(), file.contents.size())));
  }
  const auto end = tokenizer.end_of_text();
  constexpr const char* kSplits[] = {"file", "line", "blank"};
  return JsonValue::object({{"version", 1},
                            {"tokenizer", tokenizer.name()},
                            {"tokenizer_identity", tokenizer.identity()},
                            {"tokenizer_files", tokenizer_files},
                            {"vocab_size", tokenizer.vocab_size()},
                            {"end_of_text", end ? JsonValue(*end) : JsonValue()},
                            {"format", wide ? "raw_u32" : "raw_u16"},
                            {"dtype", wide ? "u32" : "u16"},
                            {"split", kSplits[static_cast<std::size_t>(options.split)]},
                            {"append_eot", options.append_eot},
                            {"val_fraction", options.val_fraction},
                            {"documents", result.documents},
                            {"val_documents", result.val_documents},
                            {"train_tokens", result.train_tokens},
                            {"val_tokens", result.val_tokens},
                            {"files", files}});
}

/// A folder under a temporary name; removed unless it was published.
class TokenizerFolder {
 public:
  TokenizerFolder(fs::path path, const Tokenizer& tokenizer)
      : path_(std::move(path)), temporary_(path_.string() + ".tmp") {
    std::error_code ignored;
    fs::remove_all(temporary_, ignored);
    try {
      tokenizer.save(temporary_);
    } catch (...) {
      fs::remove_all(temporary_, ignored);
      throw;
    }
  }
  ~TokenizerFolder() {
    std::error_code ignored;
    fs::remove_all(temporary_, ignored);
  }
  TokenizerFolder(const TokenizerFolder&) = delete;
  TokenizerFolder& operator=(const TokenizerFolder&) = delete;

  void publish() {
    std::error_code error;
    fs::remove_all(path_, error);
    if (!error) fs::rename(temporary_, path_, error);
    ENGINE_CHECK(!error, Errc::io, "cannot replace {}: {}", path_.string(), error.message());
  }

 private:
  fs::path path_;
  fs::path temporary_;
};

/// Both passes over the inputs: `take` gets the document and the bytes of input before its file.
void for_each_input(const PrepareOptions& options,
                    FunctionRef<void(const detail::Document&, std::int64_t)> take) {
  std::int64_t before = 0;
  for (const fs::path& path : options.inputs) {
    const MappedFile file(path);
    detail::for_each_document(file, options.split,
                              [&](const detail::Document& document) { take(document, before); });
    before += static_cast<std::int64_t>(file.size());
  }
}

void remove_existing(const fs::path& path) {
  std::error_code error;
  fs::remove(path, error);
  ENGINE_CHECK(!error, Errc::io, "cannot remove {}: {}", path.string(), error.message());
}

}  // namespace

DocumentSplit parse_document_split(std::string_view text) {
  if (text == "file") return DocumentSplit::file;
  if (text == "line") return DocumentSplit::line;
  ENGINE_CHECK(text == "blank", Errc::invalid_argument,
               "split: expected file, line or blank, got \"{}\"", text);
  return DocumentSplit::blank;
}

PrepareResult prepare(const PrepareOptions& options) {
  check(options);
  const auto tokenizer = make_tokenizer(options.tokenizer);
  const auto end_of_text = tokenizer->end_of_text();
  ENGINE_CHECK(!options.append_eot || end_of_text, Errc::invalid_argument,
               "the {} vocabulary has no end-of-text token to append", tokenizer->name());
  PrepareResult result;
  result.vocab_size = tokenizer->vocab_size();
  for_each_input(options, [&](const detail::Document&, std::int64_t) { ++result.documents; });
  ENGINE_CHECK(result.documents > 0, Errc::invalid_argument,
               "{}: found no text in {} input file(s)", options.inputs.front().string(),
               options.inputs.size());
  const ValidationRule rule(options.val_fraction, result.documents);
  result.val_documents = rule.whole_documents();

  std::error_code error;
  fs::create_directories(options.out, error);
  ENGINE_CHECK(!error, Errc::io, "cannot create {}: {}", options.out.string(), error.message());
  std::int64_t total = 0;
  for (const fs::path& path : options.inputs)
    total += static_cast<std::int64_t>(fs::file_size(path));

  const bool wide = result.vocab_size > kLargestU16Vocabulary;
  TokenWriter train(options.out / "train.bin", wide);
  std::optional<TokenWriter> val;
  if (options.val_fraction > 0) val.emplace(options.out / "val.bin", wide);
  std::int64_t index = 0;
  for_each_input(options, [&](const detail::Document& document, std::int64_t before) {
    const std::string_view text = options.append_eot ? document.text : document.whole;
    const std::size_t cut = rule.training_bytes(index++, text);
    if (cut > 0) train.write(tokenizer->encode(text.substr(0, cut)));
    if (cut < text.size()) val->write(tokenizer->encode(text.substr(cut)));
    if (options.append_eot) {
      (cut < text.size() ? *val : train).write(std::span(&*end_of_text, 1));
    }
    if (options.progress) {
      options.progress(before + static_cast<std::int64_t>(document.end_bytes), total);
    }
  });
  result.train_tokens = train.tokens();
  ENGINE_CHECK(result.train_tokens > 0, Errc::invalid_argument,
               "--val-fraction = {} leaves no token for training: lower it, or give more text",
               options.val_fraction);
  result.val_tokens = val ? val->tokens() : 0;

  JsonValue files = JsonValue::object({{"train.bin", train.meta()}});
  if (val) files.set("val.bin", val->meta());
  const JsonValue meta = make_meta(options, *tokenizer, wide, result, files);
  AtomicFile meta_file(options.out / "meta.json");
  meta_file.write(meta.dump(2) + "\n");
  TokenizerFolder folder(options.out / "tokenizer", *tokenizer);
  meta_file.finish();
  if (val) val->finish();
  train.finish();

  // Everything is on disk. An old train.bin goes first and the new one comes last, so that a
  // train.bin never stands beside files of another run.
  remove_existing(options.out / "train.bin");
  if (!val) remove_existing(options.out / "val.bin");
  folder.publish();
  meta_file.commit();
  if (val) val->commit();
  train.commit();
  return result;
}

}  // namespace engine::data
