#include "engine/train/sampler.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "engine/core/error.hpp"

namespace engine::train {

Sampler::Sampler(const Options& options)
    : options_(options), key_(philox::key(options.seed, "sampler")) {
  ENGINE_CHECK(options.temperature >= 0 && std::isfinite(options.temperature),
               Errc::invalid_argument, "temperature {}: expected 0 or more", options.temperature);
  ENGINE_CHECK(options.top_k >= 0, Errc::invalid_argument, "top-k {}: expected 0 (off) or more",
               options.top_k);
  ENGINE_CHECK(options.top_p > 0 && options.top_p <= 1, Errc::invalid_argument,
               "top-p {}: expected a value above 0 and at most 1", options.top_p);
}

std::int32_t Sampler::pick(std::span<const float> logits) {
  const auto best = std::max_element(logits.begin(), logits.end(), [](float a, float b) {
    return std::isnan(a) ? !std::isnan(b) : a < b;  // NaN below everything
  });
  ENGINE_CHECK(best != logits.end() && std::isfinite(*best), Errc::corrupt_data,
               "the model's logits are not finite: its weights are damaged or training diverged");
  if (options_.temperature == 0) return static_cast<std::int32_t>(best - logits.begin());

  std::vector<std::int32_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  const auto logit = [&](std::int32_t id) { return logits[static_cast<std::size_t>(id)]; };
  std::erase_if(order, [&](std::int32_t id) { return !std::isfinite(logit(id)); });
  std::sort(order.begin(), order.end(), [&](std::int32_t a, std::int32_t b) {
    return logit(a) != logit(b) ? logit(a) > logit(b) : a < b;
  });
  if (options_.top_k > 0 && static_cast<std::size_t>(options_.top_k) < order.size()) {
    order.resize(static_cast<std::size_t>(options_.top_k));
  }
  std::vector<double> weights(order.size());
  std::transform(order.begin(), order.end(), weights.begin(), [&](std::int32_t id) {
    return std::exp((static_cast<double>(logit(id)) - static_cast<double>(*best)) /
                    options_.temperature);
  });
  double total = std::accumulate(weights.begin(), weights.end(), 0.0);
  if (options_.top_p < 1) {
    double sum = 0;
    std::size_t kept = 0;
    while (kept < weights.size() && sum < options_.top_p * total) sum += weights[kept++];
    weights.resize(kept);
    total = sum;
  }
  double at = philox::unit_interval(philox::word(key_, picks_++)) * total;
  std::size_t i = 0;
  while (i + 1 < weights.size() && at >= weights[i]) at -= weights[i++];
  return order[i];
}

}  // namespace engine::train
