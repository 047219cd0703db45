#include "data_feed.hpp"

namespace engine::train::detail {
namespace {

data::TokenDataset open(const RunPlan& plan, const std::vector<std::string>& files) {
  const std::vector<std::filesystem::path> paths(files.begin(), files.end());
  return {paths, plan.format, plan.config.batch.sequence_length, plan.model.vocab_size,
          static_cast<std::int32_t>(plan.config.data.ignore_token)};
}

}  // namespace

DataFeed::DataFeed(const RunPlan& plan, Session& session)
    : plan_(&plan),
      first_(session.rank().mesh().data() * plan.config.batch.global / plan.mesh.data),
      train_(open(plan, plan.config.data.train)),
      order_(plan.order, train_.samples(), static_cast<std::uint64_t>(plan.config.train.seed)),
      reader_(train_, order_) {
  if (!plan.config.data.valid.empty()) {
    validation_.emplace(open(plan, plan.config.data.valid));
    validation_reader_.emplace(
        *validation_, data::SampleOrder(data::OrderKind::sequential, validation_->samples(), 0));
  }
  const Config::Batch& batch = plan.config.batch;
  for (int m = 0; m < plan.micros; ++m) {
    micros_.push_back(session.make_batch(batch.micro, batch.sequence_length));
  }
}

template <class Read>
std::span<const nn::MicroBatch> DataFeed::fill(std::int64_t first, Read&& read) {
  for (nn::MicroBatch& micro : micros_) {
    micro.first_sample = first;
    read(first, micro.tokens.span<std::int32_t>(), micro.targets.span<std::int32_t>());
    first += plan_->config.batch.micro;
  }
  return micros_;
}

std::span<const nn::MicroBatch> DataFeed::train(std::int64_t consumed,
                                                std::vector<std::int64_t>* sample_ids) {
  if (sample_ids != nullptr) {
    for (std::int64_t i = 0; i < plan_->config.batch.global; ++i) {
      sample_ids->push_back(order_.at(consumed + i));
    }
  }
  return fill(consumed + first_, [&](std::int64_t first, auto tokens, auto targets) {
    reader_.read(first, plan_->config.batch.micro, tokens, targets);
  });
}

std::span<const nn::MicroBatch> DataFeed::validation(std::int64_t index) {
  return fill(index * plan_->config.batch.global + first_,
              [&](std::int64_t first, auto tokens, auto targets) {
                validation_reader_->read_eval(first, plan_->config.batch.micro, tokens, targets);
              });
}

std::int64_t DataFeed::validation_batches() const {
  const std::int64_t global = plan_->config.batch.global;
  return std::min(plan_->config.train.eval_batches, (validation_->samples() + global - 1) / global);
}

}  // namespace engine::train::detail
