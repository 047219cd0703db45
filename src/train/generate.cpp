#include "engine/train/generate.hpp"

#include <filesystem>
#include <memory>
#include <optional>
#include <vector>

#include "engine/checkpoint/hugging_face.hpp"
#include "engine/checkpoint/training_state.hpp"
#include "engine/data/tokenizer.hpp"
#include "engine/nn/models.hpp"
#include "engine/ops/elementwise.hpp"
#include "engine/train/sampler.hpp"
#include "engine/train/session.hpp"
#include "hugging_face_weights.hpp"

namespace engine::train {
namespace {

namespace fs = std::filesystem;

std::shared_ptr<const data::Tokenizer> find_tokenizer(const GenerateOptions& options) {
  if (!options.tokenizer.empty()) return data::make_tokenizer(options.tokenizer);
  const fs::path inside = fs::path(options.checkpoint) / "tokenizer";
  return data::load_tokenizer(fs::is_directory(inside) ? inside : fs::path(options.checkpoint));
}

/// A whole number of UTF-8 characters at the start of `text`, in bytes; bytes that cannot become
/// one are let through.
std::size_t whole_characters(std::string_view text) {
  for (std::size_t back = 1; back <= std::min<std::size_t>(3, text.size()); ++back) {
    const auto c = static_cast<unsigned char>(text[text.size() - back]);
    if ((c & 0xc0U) == 0x80U) continue;  // continuation: look further back
    const std::size_t length = c >= 0xf0 ? 4 : c >= 0xe0 ? 3 : c >= 0xc0 ? 2 : 1;
    return length > back ? text.size() - back : text.size();
  }
  return text.size();
}

/// The model with a sequence that grows token by token.
class Generator {
 public:
  /// `room` is the longest sequence to expect; past the context length the oldest half goes.
  Generator(Session& session, const nn::ModelConfig& model, bool use_cache, std::int64_t room)
      : session_(session),
        model_(model),
        use_cache_(use_cache),
        room_(std::min(room, model.context_length)) {}

  /// Logits after `ids`, which continue the ids of the last call.
  std::vector<float> logits(std::vector<std::int32_t>& ids) {
    if (static_cast<std::int64_t>(ids.size()) > model_.context_length) {
      ids.erase(ids.begin(), ids.end() - (model_.context_length + 1) / 2);
      cache_.reset();
    }
    if (use_cache_ && !cache_) {
      cache_ = std::make_unique<nn::KvCache>(session_.device(), model_.layers, 1, room_,
                                             model_.kv_heads * model_.head_dim, session_.compute());
    }
    const std::size_t begin = cache_ ? static_cast<std::size_t>(cache_->length()) : 0;
    const auto count = static_cast<std::int64_t>(ids.size() - begin);
    nn::MicroBatch batch = session_.make_batch(1, count);
    std::copy(ids.begin() + static_cast<std::ptrdiff_t>(begin), ids.end(),
              batch.tokens.span<std::int32_t>().begin());
    const Tensor all = session_.generate(batch, cache_.get(), nn::kLogits);
    const Tensor last =
        session_.device().empty({1, 1, model_.vocab_size}, DType::f32, Category::workspace);
    ops::copy(session_.device(), all.slice(1, count - 1, count), last);
    const auto values = last.span<float>();
    return {values.begin(), values.end()};
  }

 private:
  Session& session_;
  nn::ModelConfig model_;
  bool use_cache_;
  std::int64_t room_;
  std::unique_ptr<nn::KvCache> cache_;
};

}  // namespace

void generate(const GenerateOptions& options, const std::function<void(std::string_view)>& emit) {
  ENGINE_CHECK(options.max_tokens >= 0, Errc::invalid_argument, "max-tokens {}: expected 0 or more",
               options.max_tokens);
  Sampler sampler({options.temperature, options.top_k, options.top_p, options.seed});
  ENGINE_CHECK(fs::is_directory(options.checkpoint), Errc::io,
               "{} is not a directory: expected a checkpoint or a Hugging Face directory",
               options.checkpoint);
  const auto tokenizer = find_tokenizer(options);
  if (fs::exists(fs::path(options.checkpoint) / "manifest.json")) {
    checkpoint::read_run_info(options.checkpoint);  // a damaged checkpoint must not speak
  }
  const nn::ModelConfig model = checkpoint::HfModel::open(options.checkpoint).config();
  ENGINE_CHECK(tokenizer->vocab_size() <= model.vocab_size, Errc::invalid_argument,
               "tokenizer {} has {} ids, the model {}: it is not the tokenizer of this model",
               tokenizer->name(), tokenizer->vocab_size(), model.vocab_size);

  parallel::RankContext::Options rank_options;
  rank_options.device.threads = options.threads;
  parallel::RankContext rank(rank_options);
  SessionOptions session_options;
  session_options.training = false;
  session_options.compute = options.bf16 ? DType::bf16 : DType::f32;
  Session session(rank, nn::make_model(model), session_options);
  detail::load_hugging_face(session, options.checkpoint);

  std::vector<std::int32_t> ids = tokenizer->encode(options.prompt);
  if (ids.empty()) {
    ENGINE_CHECK(tokenizer->end_of_text().has_value(), Errc::invalid_argument,
                 "the prompt is empty and tokenizer {} has no end-of-text id to start from: give "
                 "--prompt",
                 tokenizer->name());
    ids.push_back(*tokenizer->end_of_text());
  }
  const std::int64_t room = options.max_tokens < model.context_length
                                ? static_cast<std::int64_t>(ids.size()) + options.max_tokens
                                : model.context_length;
  Generator generator(session, model, options.cache, room);
  emit(options.prompt);
  // Decoded as a whole every time: what a piece looks like may depend on the one before it.
  std::vector<std::int32_t> sequence = ids;
  std::size_t emitted = tokenizer->decode(sequence).size();
  for (std::int64_t n = 0; n < options.max_tokens; ++n) {
    std::vector<float> logits = generator.logits(ids);
    logits.resize(static_cast<std::size_t>(tokenizer->vocab_size()));  // padded rows are no text
    const std::int32_t id = sampler.pick(logits);
    if (tokenizer->end_of_text() == id) break;
    ids.push_back(id);
    sequence.push_back(id);
    const std::string text = tokenizer->decode(sequence);
    const bool last = n + 1 == options.max_tokens;
    const std::size_t whole = last ? text.size() : whole_characters(text);
    if (whole > emitted) emit(std::string_view(text).substr(emitted, whole - emitted));
    emitted = std::max(emitted, whole);
  }
}

}  // namespace engine::train
