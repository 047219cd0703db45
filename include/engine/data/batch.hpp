#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "engine/data/dataset.hpp"
#include "engine/data/sample_order.hpp"

namespace engine::data {

/// Fills the rows of (micro-)batches. Stateless: what is read depends on the arguments alone, so
/// every rank reads its own rows. Refers to the dataset, which must outlive it.
class BatchReader {
 public:
  /// `order` must be over `dataset.samples()` samples.
  BatchReader(const TokenDataset& dataset, SampleOrder order);

  std::int64_t sequence_length() const noexcept { return dataset_->sequence_length(); }

  /// Row r is the sample that follows after `first_consumed` + r samples. The ids of the samples
  /// are appended to `sample_ids` if it is given. Shapes: tokens [rows,T], targets [rows,T].
  void read(std::int64_t first_consumed, std::int64_t rows, std::span<std::int32_t> tokens,
            std::span<std::int32_t> targets, std::vector<std::int64_t>* sample_ids = nullptr) const;

  /// Row r is sample `first` + r in file order, whatever the order; rows past the last sample are
  /// token 0 with ignored targets. Shapes: tokens [rows,T], targets [rows,T].
  void read_eval(std::int64_t first, std::int64_t rows, std::span<std::int32_t> tokens,
                 std::span<std::int32_t> targets) const;

 private:
  void check(std::int64_t first, std::int64_t rows, std::span<std::int32_t> tokens,
             std::span<std::int32_t> targets) const;

  const TokenDataset* dataset_;
  SampleOrder order_;
};

}  // namespace engine::data
