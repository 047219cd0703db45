#include "engine/optim/optimizer.hpp"

#include "engine/optim/rules.hpp"
#include "optim/flat_pass.hpp"
#include "optim/muon.hpp"

namespace engine::optim {

namespace {

class AdamWOptimizer final : public Optimizer {
 public:
  explicit AdamWOptimizer(const OptimizerConfig& config) : config_(config) {}

  std::string_view name() const override { return "adamw"; }
  std::vector<std::string> moment_names() const override { return {"exp_avg", "exp_avg_sq"}; }
  void step(DeviceContext& device, const FlatState& state,
            const StepScalars& scalars) const override {
    detail::check(device, state, 2);
    if (device.device().is_meta()) return;
    const AdamW rule(scalars.lr, config_.beta1, config_.beta2, config_.eps, scalars.gradient_scale,
                     scalars.step);
    detail::flat_pass(device, state, rule, decay_factor(scalars.lr, config_.weight_decay));
  }

 private:
  OptimizerConfig config_;
};

class SgdOptimizer final : public Optimizer {
 public:
  explicit SgdOptimizer(const OptimizerConfig& config) : config_(config) {}

  std::string_view name() const override { return "sgd"; }
  std::vector<std::string> moment_names() const override { return {"momentum"}; }
  void step(DeviceContext& device, const FlatState& state,
            const StepScalars& scalars) const override {
    detail::check(device, state, 1);
    if (device.device().is_meta()) return;
    const Sgd rule(scalars.lr, config_.momentum, scalars.gradient_scale);
    detail::flat_pass(device, state, rule, decay_factor(scalars.lr, config_.weight_decay));
  }

 private:
  OptimizerConfig config_;
};

class LionOptimizer final : public Optimizer {
 public:
  explicit LionOptimizer(const OptimizerConfig& config) : config_(config) {}

  std::string_view name() const override { return "lion"; }
  std::vector<std::string> moment_names() const override { return {"exp_avg"}; }
  void step(DeviceContext& device, const FlatState& state,
            const StepScalars& scalars) const override {
    detail::check(device, state, 1);
    if (device.device().is_meta()) return;
    const Lion rule(scalars.lr, config_.beta1, config_.beta2, scalars.gradient_scale);
    detail::flat_pass(device, state, rule, decay_factor(scalars.lr, config_.weight_decay));
  }

 private:
  OptimizerConfig config_;
};

void validate(const OptimizerConfig& config) {
  const auto fraction = [](std::string_view key, double value) {
    ENGINE_CHECK(value >= 0 && value < 1, Errc::invalid_argument,
                 "{} = {}: expected 0 <= value < 1", key, value);
  };
  fraction("optimizer.betas[0]", config.beta1);
  fraction("optimizer.betas[1]", config.beta2);
  fraction("optimizer.momentum", config.momentum);
  ENGINE_CHECK(config.eps > 0 && config.eps < 1, Errc::invalid_argument,
               "optimizer.eps = {}: expected a small positive number such as 1e-8", config.eps);
  ENGINE_CHECK(config.weight_decay >= 0 && config.weight_decay < 1e6, Errc::invalid_argument,
               "optimizer.weight_decay = {}: expected 0 or more", config.weight_decay);
}

}  // namespace

std::unique_ptr<Optimizer> make_optimizer(const OptimizerConfig& config) {
  validate(config);
  if (config.name == "adamw") return std::make_unique<AdamWOptimizer>(config);
  if (config.name == "sgd") return std::make_unique<SgdOptimizer>(config);
  if (config.name == "lion") return std::make_unique<LionOptimizer>(config);
  if (config.name == "muon") return detail::make_muon(config);
  ENGINE_FAIL(Errc::invalid_argument, "optimizer.name = \"{}\": expected adamw, sgd, lion or muon",
              config.name);
}

}  // namespace engine::optim
