#pragma once
#include <memory>
#include <string_view>

#include "engine/core/function_ref.hpp"

namespace engine::data::detail {

/// Cuts text into the pieces that GPT-2 merges apart: contractions, words, numbers, other signs,
/// white space. White space is Unicode's White_Space; letters and numbers are those of PCRE2's
/// Unicode version (14 for PCRE2 10.42).
/// A run of bytes that is not valid UTF-8 is a piece of its own, and text ends before it.
class Gpt2Splitter {
 public:
  Gpt2Splitter();
  ~Gpt2Splitter();
  Gpt2Splitter(const Gpt2Splitter&) = delete;
  Gpt2Splitter& operator=(const Gpt2Splitter&) = delete;

  /// Calls `take` with every piece in order; together they are `text`.
  void split(std::string_view text, FunctionRef<void(std::string_view)> take) const;

 private:
  struct Code;
  std::unique_ptr<Code> code_;
};

/// Length of the valid UTF-8 at the start of `text`.
std::size_t valid_utf8_prefix(std::string_view text) noexcept;

}  // namespace engine::data::detail
