#include "engine/data/dataset.hpp"

#include <algorithm>
#include <string>

#include "engine/core/error.hpp"

namespace engine::data {

TokenDataset::TokenDataset(std::span<const std::filesystem::path> paths, TokenFormat format,
                           std::int64_t sequence_length, std::int64_t vocab_size,
                           std::int32_t ignore_token)
    : sequence_length_(sequence_length), ignore_token_(ignore_token) {
  ENGINE_CHECK(!paths.empty(), Errc::invalid_argument, "a dataset needs at least one token file");
  ENGINE_CHECK(sequence_length >= 1, Errc::invalid_argument,
               "sequence length: expected at least 1, got {}", sequence_length);
  std::int64_t total = 0;
  std::string names;
  std::string counts;
  for (const auto& path : paths) {
    const TokenFile& file = files_.emplace_back(TokenFile::open(path, format, vocab_size));
    total += std::max<std::int64_t>(0, file.tokens() - 1) / sequence_length;
    ends_.push_back(total);
    names += (names.empty() ? "" : ", ") + path.string();
    counts += (counts.empty() ? "" : ", ") + std::to_string(file.tokens());
  }
  ENGINE_CHECK(total > 0, Errc::invalid_argument,
               "{}: needs at least T+1 = {} tokens for one sample, got {}", names,
               sequence_length + 1, counts);
}

void TokenDataset::sample(std::int64_t index, std::span<std::int32_t> inputs,
                          std::span<std::int32_t> targets) const {
  ENGINE_CHECK(index >= 0 && index < samples(), Errc::invalid_argument,
               "sample {} is not among the {} of the dataset", index, samples());
  const auto length = static_cast<std::size_t>(sequence_length_);
  ENGINE_CHECK(inputs.size() == length && targets.size() == length, Errc::invalid_argument,
               "a sample has {} inputs and targets, got room for {} and {}", length, inputs.size(),
               targets.size());
  const auto file =
      static_cast<std::size_t>(std::upper_bound(ends_.begin(), ends_.end(), index) - ends_.begin());
  const std::int64_t begin = (index - (file == 0 ? 0 : ends_[file - 1])) * sequence_length_;
  files_[file].read(begin, inputs);
  files_[file].read(begin + 1, targets);
  if (ignore_token_ != kIgnoredTarget) {
    std::replace(targets.begin(), targets.end(), ignore_token_, kIgnoredTarget);
  }
}

}  // namespace engine::data
