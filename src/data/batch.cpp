#include "engine/data/batch.hpp"

#include <algorithm>

#include "engine/core/error.hpp"

namespace engine::data {

BatchReader::BatchReader(const TokenDataset& dataset, SampleOrder order)
    : dataset_(&dataset), order_(order) {
  ENGINE_CHECK(order.samples() == dataset.samples(), Errc::invalid_argument,
               "the order is over {} samples, the dataset has {}", order.samples(),
               dataset.samples());
}

void BatchReader::check(std::int64_t first, std::int64_t rows, std::span<std::int32_t> tokens,
                        std::span<std::int32_t> targets) const {
  ENGINE_CHECK(first >= 0 && rows >= 0, Errc::invalid_argument,
               "expected a first sample and a number of rows of at least 0, got {} and {}", first,
               rows);
  const auto numel = static_cast<std::size_t>(rows * sequence_length());
  ENGINE_CHECK(tokens.size() == numel && targets.size() == numel, Errc::invalid_argument,
               "{} rows have {} tokens and targets, got room for {} and {}", rows, numel,
               tokens.size(), targets.size());
}

void BatchReader::read(std::int64_t first_consumed, std::int64_t rows,
                       std::span<std::int32_t> tokens, std::span<std::int32_t> targets,
                       std::vector<std::int64_t>* sample_ids) const {
  check(first_consumed, rows, tokens, targets);
  const auto length = static_cast<std::size_t>(sequence_length());
  for (std::int64_t row = 0; row < rows; ++row) {
    const std::int64_t id = order_.at(first_consumed + row);
    const std::size_t at = static_cast<std::size_t>(row) * length;
    dataset_->sample(id, tokens.subspan(at, length), targets.subspan(at, length));
    if (sample_ids != nullptr) sample_ids->push_back(id);
  }
}

void BatchReader::read_eval(std::int64_t first, std::int64_t rows, std::span<std::int32_t> tokens,
                            std::span<std::int32_t> targets) const {
  check(first, rows, tokens, targets);
  const auto length = static_cast<std::size_t>(sequence_length());
  const std::int64_t present = std::clamp<std::int64_t>(dataset_->samples() - first, 0, rows);
  for (std::int64_t row = 0; row < present; ++row) {
    const std::size_t at = static_cast<std::size_t>(row) * length;
    dataset_->sample(first + row, tokens.subspan(at, length), targets.subspan(at, length));
  }
  const std::size_t padding = static_cast<std::size_t>(present) * length;
  std::ranges::fill(tokens.subspan(padding), 0);
  std::ranges::fill(targets.subspan(padding), kIgnoredTarget);
}

}  // namespace engine::data
