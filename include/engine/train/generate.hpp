#pragma once
#include <functional>
#include <string>
#include <string_view>

namespace engine::train {

struct GenerateOptions {
  std::string checkpoint;  ///< training state or Hugging Face directory
  std::string tokenizer;   ///< as for `prepare`; empty: the one the checkpoint carries
  std::string prompt;
  std::int64_t max_tokens = 100;
  double temperature = 1.0;  ///< 0: always the likeliest token
  std::int64_t top_k = 0;    ///< sample among the k likeliest; 0: off
  double top_p = 1.0;        ///< sample among the likeliest that together reach p
  std::uint64_t seed = 0;
  int threads = 0;
  bool bf16 = false;  ///< compute in bf16
  bool cache = true;  ///< false: run the whole sequence for every token
};

/// Continues a prompt and hands over text as it comes (whole UTF-8 characters where the tokenizer
/// makes them). Ends at the end-of-text id, at max_tokens, or, past the context length, goes on
/// with the latest half of it. Throws engine::Error.
void generate(const GenerateOptions& options, const std::function<void(std::string_view)>& emit);

}  // namespace engine::train
