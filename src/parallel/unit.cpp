#include "engine/parallel/unit.hpp"

#include <chrono>

#include "engine/core/philox.hpp"
#include "engine/ops/elementwise.hpp"
#include "engine/ops/profile.hpp"

namespace engine::parallel {
namespace {

using autograd::Init;
using autograd::Parameter;
using autograd::Role;

std::vector<LayoutEntry> entries_of(std::span<Parameter* const> parameters) {
  std::vector<LayoutEntry> entries;
  for (const Parameter* p : parameters) entries.push_back({p->shape().numel(), 1});
  return entries;
}

optim::Segment segment_of(const Parameter& p, std::int64_t begin) {
  optim::Segment s;
  s.begin = begin;
  s.numel = p.shape().numel();
  s.decay = p.shape().rank() >= 2;
  s.matrix = p.spec().role == Role::matrix && p.shape().rank() == 2;
  if (p.shape().rank() == 2) {
    s.rows = p.shape()[0];
    s.cols = p.shape()[1];
  }
  s.sections = p.spec().sections;
  s.section_dim = p.spec().section_dim;
  return s;
}

constexpr std::int64_t kInitChunk = 1 << 16;

void fill_normal(DeviceContext& device, const Parameter& p, std::span<float> out) {
  const philox::Key key = philox::key(device.seed(), p.name());
  const double stddev = p.spec().init.stddev;
  const auto n = static_cast<std::int64_t>(out.size());
  device.pool().parallel_for((n + kInitChunk - 1) / kInitChunk, [&](std::int64_t chunk) {
    const std::int64_t end = std::min(n, (chunk + 1) * kInitChunk);
    for (std::int64_t i = chunk * kInitChunk; i < end; i += 4) {  // one block makes four elements
      const philox::Block words = philox::generate(key, static_cast<std::uint64_t>(i) / 4);
      for (std::size_t pair = 0; pair < 4; pair += 2) {
        const auto normals = philox::normal_pair(words[pair], words[pair + 1]);
        for (std::size_t k = 0; k < 2; ++k) {
          const std::int64_t at = i + static_cast<std::int64_t>(pair + k);
          if (at < end) out[static_cast<std::size_t>(at)] = static_cast<float>(normals[k] * stddev);
        }
      }
    }
  });
}

}  // namespace

Unit::Unit(DeviceContext& device, std::string name, std::vector<Parameter*> parameters,
           DType compute)
    : device_(&device),
      name_(std::move(name)),
      parameters_(std::move(parameters)),
      layout_(entries_of(parameters_), 1) {
  ENGINE_ASSERT(compute == DType::f32 || compute == DType::bf16, "compute type {}",
                engine::name(compute));
  const Shape flat = {layout_.total_numel()};
  master_ = device.empty(flat, DType::f32, Category::parameters);
  ops::fill(device, master_, 0);
  compute_ = master_;
  if (compute == DType::bf16) {
    compute_ = device.empty(flat, DType::bf16, Category::parameters);
    ops::fill(device, compute_, 0);
  }
  for (int i = 0; i < layout_.entries(); ++i) {
    Parameter& p = *parameters_[static_cast<std::size_t>(i)];
    p.bind_value(part(compute_, i));
    segments_.push_back(segment_of(p, layout_.offset(i)));
  }
}

Unit::~Unit() {
  for (Parameter* p : parameters_) {  // empty after a move
    p->bind_value({});
    p->bind_gradient({});
  }
}

std::int64_t Unit::numel() const noexcept {
  std::int64_t n = 0;
  for (const Parameter* p : parameters_) n += p->shape().numel();
  return n;
}

Tensor Unit::part(const Tensor& flat, int i) const {
  const std::int64_t begin = layout_.offset(i);
  return flat.slice(0, begin, begin + layout_.numel(i))
      .view(parameters_[static_cast<std::size_t>(i)]->shape());
}

void Unit::initialise() {
  if (device_->device().is_meta()) return;
  for (int i = 0; i < layout_.entries(); ++i) {
    const Parameter& p = *parameters_[static_cast<std::size_t>(i)];
    const Tensor values = master(i);
    switch (p.spec().init.kind) {
      case Init::Kind::zeros:
        ops::fill(*device_, values, 0);
        break;
      case Init::Kind::ones:
        ops::fill(*device_, values, 1);
        break;
      case Init::Kind::normal:
        fill_normal(*device_, p, values.span<float>());
        break;
    }
  }
  masters_changed();
}

void Unit::masters_changed() {
  if (compute_.dtype() != DType::f32) ops::copy(*device_, master_, compute_);
}

void Unit::prepare_training(const optim::Optimizer& optimizer, DType moments) {
  const Shape flat = {layout_.total_numel()};
  gradient_ = device_->empty(flat, DType::f32, Category::gradients);
  ops::fill(*device_, gradient_, 0);
  for (std::size_t k = 0; k < optimizer.moment_names().size(); ++k) {
    moments_.push_back(device_->empty(flat, moments, Category::optimizer));
    ops::fill(*device_, moments_.back(), 0);
  }
  for (int i = 0; i < layout_.entries(); ++i) {
    parameters_[static_cast<std::size_t>(i)]->bind_gradient(part(gradient_, i));
  }
}

void Unit::begin_accumulation() {
  for (Parameter* p : parameters_) p->begin_accumulation();
}

void Unit::finish_accumulation() {
  for (int i = 0; i < layout_.entries(); ++i) {
    if (!parameters_[static_cast<std::size_t>(i)]->gradient()) {
      ops::fill(*device_, gradient(i), 0);
    }
  }
}

double Unit::gradient_sum_of_squares() { return ops::sum_of_squares(*device_, gradient_); }

void Unit::step(const optim::Optimizer& optimizer, const optim::StepScalars& scalars) {
  optim::FlatState state;
  state.master = master_;
  state.gradient = gradient_;
  state.moments = moments_;
  if (compute_.dtype() != DType::f32) state.low_precision = compute_;
  state.segments = segments_;
  const auto begin = std::chrono::steady_clock::now();
  optimizer.step(*device_, state, scalars);
  if (ops::Profile* profile = device_->profile()) {
    const std::chrono::duration<double, std::milli> ms = std::chrono::steady_clock::now() - begin;
    std::size_t bytes = 2 * master_.bytes() + gradient_.bytes();
    for (const Tensor& moment : moments_) bytes += 2 * moment.bytes();
    if (state.low_precision) bytes += state.low_precision.bytes();
    profile->add(optimizer.name(), ms.count(), 0, static_cast<double>(bytes));
  }
}

}  // namespace engine::parallel
