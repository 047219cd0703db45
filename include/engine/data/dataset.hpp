#pragma once
#include <cstdint>
#include <filesystem>
#include <span>
#include <vector>

#include "engine/data/token_file.hpp"

namespace engine::data {

/// Target that counts for nothing.
inline constexpr std::int32_t kIgnoredTarget = -1;

/// Samples of T tokens over one or more token files. A file of n tokens holds (n-1) div T samples,
/// its tail is dropped; sample i of a file is tokens [iT, iT+T]; samples are numbered through
/// across files. Safe to read from many threads.
class TokenDataset {
 public:
  /// Targets equal to `ignore_token` become `kIgnoredTarget`.
  /// Throws: as `TokenFile::open`; Errc::invalid_argument if there is not a single sample.
  TokenDataset(std::span<const std::filesystem::path> paths, TokenFormat format,
               std::int64_t sequence_length, std::int64_t vocab_size,
               std::int32_t ignore_token = kIgnoredTarget);

  std::int64_t samples() const noexcept { return ends_.back(); }
  std::int64_t sequence_length() const noexcept { return sequence_length_; }
  std::span<const TokenFile> files() const noexcept { return files_; }

  /// Writes sample `index`; `inputs` and `targets` have T elements each.
  void sample(std::int64_t index, std::span<std::int32_t> inputs,
              std::span<std::int32_t> targets) const;

 private:
  std::vector<TokenFile> files_;
  std::vector<std::int64_t> ends_;  // samples in files 0..i
  std::int64_t sequence_length_;
  std::int32_t ignore_token_;
};

}  // namespace engine::data
