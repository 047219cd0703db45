#pragma once
// The micro-batches of a step, read into tensors that are made once.
#include <optional>
#include <vector>

#include "engine/data/batch.hpp"
#include "engine/data/dataset.hpp"
#include "engine/train/run_plan.hpp"

namespace engine::train::detail {

class DataFeed {
 public:
  DataFeed(const RunPlan& plan, Session& session);

  /// This rank's micro-batches of the step that starts after `consumed` samples; valid until the
  /// next call. `sample_ids` receives the ids of the whole step.
  std::span<const nn::MicroBatch> train(std::int64_t consumed,
                                        std::vector<std::int64_t>* sample_ids);
  bool has_validation() const noexcept { return validation_.has_value(); }
  /// This rank's micro-batches of evaluation batch `index`, padded with ignored targets; likewise.
  std::span<const nn::MicroBatch> validation(std::int64_t index);
  /// Evaluation batches that hold a sample, at most train.eval_batches.
  std::int64_t validation_batches() const;
  const data::TokenDataset& dataset() const noexcept { return train_; }

 private:
  template <class Read>
  std::span<const nn::MicroBatch> fill(std::int64_t first, Read&& read);

  const RunPlan* plan_;
  std::int64_t first_;  ///< this rank's first sample of a step
  data::TokenDataset train_;
  data::SampleOrder order_;
  data::BatchReader reader_;
  std::optional<data::TokenDataset> validation_;
  std::optional<data::BatchReader> validation_reader_;
  std::vector<nn::MicroBatch> micros_;
};

}  // namespace engine::train::detail
