#include "engine/train/session.hpp"

#include "engine/parallel/unit_plan.hpp"
#include "engine/program/access.hpp"

namespace engine::train {

Session::Session(parallel::RankContext& rank, nn::Model model, const SessionOptions& options)
    : rank_(&rank),
      model_(std::move(model)),
      options_(options),
      optimizer_(optim::make_optimizer(options.optimizer)) {
  ENGINE_CHECK(options.compute == DType::f32 || options.compute == DType::bf16,
               Errc::invalid_argument, "compute type {}: expected f32 or bf16",
               name(options.compute));
  ENGINE_CHECK(options.moments == DType::f32 || options.moments == DType::bf16,
               Errc::invalid_argument, "moment type {}: expected f32 or bf16",
               name(options.moments));
  ENGINE_CHECK(!model_.empty(), Errc::invalid_argument, "a model needs at least one block");
  std::vector<parallel::BlockParameters> blocks;
  for (const auto& block : model_) blocks.push_back({block->name(), block->parameters()});
  const parallel::UnitPlan plan = parallel::plan_units(blocks);
  const parallel::Mesh& mesh = rank.mesh();
  parallel::Sharding sharding;
  sharding.zero_stage = options.zero_stage;
  sharding.shards = mesh.shape().shards();
  sharding.shard = mesh.shard();
  sharding.whole_matrices = options.optimizer.name == "muon";
  sharding.wire = options.reduce_type;
  units_.reserve(plan.units.size());
  for (const parallel::UnitPlan::Unit& u : plan.units) {
    units_.emplace_back(device(), u.name, u.parameters, options.compute, sharding);
    units_.back().initialise();
    if (options.training) units_.back().prepare_training(*optimizer_, options.moments);
    info_.units.push_back(u.name);
  }
  for (std::size_t b = 0; b < model_.size(); ++b) {
    info_.blocks.push_back({model_[b]->name(), plan.units_of_block[b], model_[b]->makes_loss(),
                            model_[b]->backward_reads_weights()});
  }
  executor_ = std::make_unique<program::Executor>(rank, model_, info_, units_, optimizer_.get(),
                                                  options.executor);
}

Session::~Session() = default;

StepResult Session::step(std::span<const nn::MicroBatch> micros, double lr, program::Trace* trace) {
  ENGINE_CHECK(options_.training, Errc::invalid_argument,
               "this session was made for evaluation: it has no gradients or optimizer state");
  const program::Program& program = step_program(static_cast<int>(micros.size()));
  const StepResult result =
      executor_->run(program, {micros, lr, optimizer_steps_ + 1, options_.clip_grad_norm}, trace);
  if (!result.skipped) ++optimizer_steps_;
  return result;
}

Session::EvalResult Session::evaluate(std::span<const nn::MicroBatch> micros) {
  const StepResult result =
      executor_->run(evaluation_program(static_cast<int>(micros.size())), {micros});
  return {result.loss, result.targets};
}

Tensor Session::generate(const nn::MicroBatch& batch, nn::KvCache* cache, std::string_view output) {
  autograd::Tape tape(device(), autograd::Tape::Mode::replay);
  nn::BlockIO io;
  const nn::BlockContext context = {device(), batch, nn::Pass::generate, 1, nullptr, cache};
  for (std::size_t b = 0; b < model_.size(); ++b) {
    executor_->with_values(static_cast<int>(b), [&] { model_[b]->forward(tape, io, context); });
  }
  if (cache != nullptr) cache->advance(batch.tokens.size(1));
  return io.get(output).tensor;
}

nn::MicroBatch Session::make_batch(std::int64_t rows, std::int64_t length) {
  const auto ids = [&] {
    return device().empty({rows, length}, DType::i32, Category::activations);
  };
  return {ids(), ids(), 0};
}

std::int64_t Session::parameter_count() const noexcept {
  std::int64_t n = 0;
  for (const parallel::Unit& unit : units_) n += unit.numel();
  return n;
}

void Session::save(const std::string& dir, checkpoint::RunInfo info) {
  info.optimizer_steps = optimizer_steps_;
  info.optimizer = optimizer_->name();
  info.seed = static_cast<std::int64_t>(rank_->device().seed());
  checkpoint::save_training_state(dir, info, units_, optimizer_->moment_names(),
                                  rank_->shard_group(), rank_->rank() == 0);
}

void Session::weights_changed() {
  for (parallel::Unit& unit : units_) unit.masters_changed();
  executor_->values_changed();
}

program::ShardPlan Session::shard_plan() const {
  const parallel::MeshShape& mesh = rank_->mesh().shape();
  program::ShardPlan plan;
  plan.zero_stage = options_.zero_stage;
  plan.data = mesh.data;
  plan.shards = mesh.shards();
  plan.gather = options_.gather;
  plan.reduce = options_.reduce;
  plan.prefetch_units = options_.prefetch_units;
  return plan;
}

checkpoint::RunInfo Session::load(const std::string& dir) {
  checkpoint::RunInfo info = checkpoint::read_run_info(dir);
  ENGINE_CHECK(!options_.training || info.optimizer == optimizer_->name(), Errc::invalid_argument,
               "{} was saved with optimizer {}, this session uses {}: their states do not fit", dir,
               info.optimizer, optimizer_->name());
  checkpoint::load_training_state(dir, units_, optimizer_->moment_names());
  weights_changed();
  optimizer_steps_ = info.optimizer_steps;
  return info;
}

const program::Program& Session::step_program(int micros) {
  const auto [it, fresh] = step_programs_.try_emplace(micros);
  if (fresh) {
    it->second = program::plan_step(
        info_, {.micros = micros, .recompute = options_.recompute, .sharding = shard_plan()});
    program::verify(it->second, info_);
  }
  return it->second;
}

const program::Program& Session::evaluation_program(int micros) {
  const auto [it, fresh] = evaluation_programs_.try_emplace(micros);
  if (fresh) {
    it->second = program::plan_evaluation(info_, micros, shard_plan());
    program::verify(it->second, info_);
  }
  return it->second;
}

}  // namespace engine::train
