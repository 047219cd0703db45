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

bool is_matrix(const Parameter& p) {
  return p.spec().role == Role::matrix && p.shape().rank() == 2;
}

/// Elements that a shard boundary must keep together.
std::int64_t granularity(const Parameter& p, const Sharding& sharding) {
  if (!sharding.whole_matrices || !is_matrix(p)) return 1;
  const std::int64_t numel = p.shape().numel();
  return p.spec().section_dim == 0 ? numel / p.spec().sections : numel;
}

std::vector<LayoutEntry> entries_of(std::span<Parameter* const> parameters,
                                    const Sharding& sharding) {
  std::vector<LayoutEntry> entries;
  for (const Parameter* p : parameters) {
    entries.push_back({p->shape().numel(), granularity(*p, sharding)});
  }
  return entries;
}

optim::Segment segment_of(const Parameter& p, const ShardPiece& piece) {
  optim::Segment s;
  s.begin = piece.shard_begin;
  s.numel = piece.numel;
  s.decay = p.shape().rank() >= 2;
  s.matrix = is_matrix(p);
  s.sections = p.spec().sections;
  s.section_dim = p.spec().section_dim;
  if (p.shape().rank() == 2) {
    s.rows = p.shape()[0];
    s.cols = p.shape()[1];
  }
  if (s.matrix && piece.numel != p.shape().numel() && s.cols > 0) {  // some whole sections
    s.sections = static_cast<int>(piece.numel * s.sections / p.shape().numel());
    s.rows = piece.numel / s.cols;
  }
  return s;
}

constexpr std::int64_t kInitChunk = 1 << 16;

/// Normal values for elements [first, first + out.size()) of a parameter. A Philox block makes four
/// neighbours, so a piece may start and end inside one.
void fill_normal(DeviceContext& device, const Parameter& p, std::int64_t first,
                 std::span<float> out) {
  const philox::Key key = philox::key(device.seed(), p.name());
  const double stddev = p.spec().init.stddev;
  const std::int64_t last = first + static_cast<std::int64_t>(out.size());
  const std::int64_t first_chunk = first / kInitChunk;
  const std::int64_t chunks = (last + kInitChunk - 1) / kInitChunk - first_chunk;
  device.pool().parallel_for(chunks, [&](std::int64_t chunk) {
    const std::int64_t begin = (first_chunk + chunk) * kInitChunk;
    const std::int64_t end = std::min(last, begin + kInitChunk);
    for (std::int64_t i = begin; i < end; i += 4) {
      if (i + 4 <= first) continue;
      const philox::Block words = philox::generate(key, static_cast<std::uint64_t>(i) / 4);
      for (std::size_t pair = 0; pair < 4; pair += 2) {
        const auto normals = philox::normal_pair(words[pair], words[pair + 1]);
        for (std::size_t k = 0; k < 2; ++k) {
          const std::int64_t at = i + static_cast<std::int64_t>(pair + k);
          if (at < first || at >= end) continue;
          out[static_cast<std::size_t>(at - first)] = static_cast<float>(normals[k] * stddev);
        }
      }
    }
  });
}

// Transfers run on a lane's thread, beside the rank's own, so they do not use its thread pool.

void narrow(const Tensor& from, const Tensor& to) {
  if (from.is_meta()) return;
  const float* x = from.data<float>();
  bf16* y = to.data<bf16>();
  for (std::int64_t i = 0; i < from.numel(); ++i) y[i] = bf16(x[i]);
}

template <class T>
void put(const T* from, float* to, std::int64_t n, bool add) {
  if (add) {
    for (std::int64_t i = 0; i < n; ++i) to[i] += static_cast<float>(from[i]);
  } else {
    for (std::int64_t i = 0; i < n; ++i) to[i] = static_cast<float>(from[i]);
  }
}

/// Writes or adds `from` (f32 or bf16) to the f32 tensor `to`.
void put(const Tensor& from, const Tensor& to, bool add) {
  if (from.is_meta()) return;
  if (from.dtype() == DType::bf16) {
    put(from.data<bf16>(), to.data<float>(), to.numel(), add);
  } else {
    put(from.data<float>(), to.data<float>(), to.numel(), add);
  }
}

}  // namespace

Unit::Unit(DeviceContext& device, std::string name, std::vector<Parameter*> parameters,
           DType compute, const Sharding& sharding)
    : device_(&device),
      name_(std::move(name)),
      parameters_(std::move(parameters)),
      sharding_(sharding),
      layout_(entries_of(parameters_, sharding), sharding.shards) {
  ENGINE_ASSERT(compute == DType::f32 || compute == DType::bf16, "compute type {}",
                engine::name(compute));
  const auto make = [&](std::int64_t numel, DType dtype) {
    Tensor t = device.empty({numel}, dtype, Category::parameters);
    ops::fill(device, t, 0);
    return t;
  };
  const std::int64_t total = layout_.total_numel();
  const std::int64_t shard = layout_.shard_numel();
  if (sharding.keeps_values()) {
    bind_values(make(total, compute));
    shard_values_ = own_shard(values_);
    master_ = sharding.keeps_state() ? values_ : shard_values_;
  } else {
    shard_values_ = make(shard, compute);
    master_ = shard_values_;
  }
  if (compute != DType::f32) master_ = make(sharding.keeps_state() ? total : shard, DType::f32);

  if (sharding.keeps_state()) {
    for (int i = 0; i < layout_.entries(); ++i) {
      if (layout_.numel(i) > 0) pieces_.push_back({i, 0, layout_.offset(i), layout_.numel(i)});
    }
  } else {
    pieces_ = layout_.pieces(sharding.shard);
  }
  for (const ShardPiece& piece : pieces_) {
    segments_.push_back(segment_of(*parameters_[static_cast<std::size_t>(piece.entry)], piece));
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

std::int64_t Unit::state_begin() const noexcept {
  return sharding_.keeps_state() ? 0 : sharding_.shard * layout_.shard_numel();
}

Tensor Unit::part(const Tensor& whole, int i) const {
  ENGINE_ASSERT(whole.numel() == layout_.total_numel(), "unit {}: {} elements of {}", name_,
                whole.numel(), layout_.total_numel());
  const std::int64_t begin = layout_.offset(i);
  return whole.slice(0, begin, begin + layout_.numel(i))
      .view(parameters_[static_cast<std::size_t>(i)]->shape());
}

Tensor Unit::own_shard(const Tensor& whole) const {
  const std::int64_t begin = sharding_.shard * layout_.shard_numel();
  return whole.slice(0, begin, begin + layout_.shard_numel());
}

void Unit::bind_values(const Tensor& whole) {
  values_ = whole;
  for (int i = 0; i < layout_.entries(); ++i) {
    parameters_[static_cast<std::size_t>(i)]->bind_value(whole ? part(whole, i) : Tensor());
  }
}

void Unit::initialise() {
  if (device_->device().is_meta()) return;
  for (const ShardPiece& piece : pieces_) {
    const Parameter& p = *parameters_[static_cast<std::size_t>(piece.entry)];
    const Tensor values = master_.slice(0, piece.shard_begin, piece.shard_begin + piece.numel);
    switch (p.spec().init.kind) {
      case Init::Kind::zeros:
        ops::fill(*device_, values, 0);
        break;
      case Init::Kind::ones:
        ops::fill(*device_, values, 1);
        break;
      case Init::Kind::normal:
        fill_normal(*device_, p, piece.entry_begin, values.span<float>());
        break;
    }
  }
  masters_changed();
}

void Unit::masters_changed() {
  if (shard_values_.dtype() == DType::f32) return;
  ops::copy(*device_, master_, sharding_.keeps_state() ? values_ : shard_values_);
}

void Unit::prepare_training(const optim::Optimizer& optimizer, DType moments) {
  const Shape state = master_.shape();
  const auto make = [&](const Shape& shape, DType dtype, Category category) {
    Tensor t = device_->empty(shape, dtype, category);
    ops::fill(*device_, t, 0);
    return t;
  };
  if (sharding_.keeps_gradients()) {
    whole_gradient_ = make({layout_.total_numel()}, DType::f32, Category::gradients);
    gradient_ = sharding_.keeps_state() ? whole_gradient_ : own_shard(whole_gradient_);
  } else {
    gradient_ = make(state, DType::f32, Category::gradients);
  }
  for (std::size_t k = 0; k < optimizer.moment_names().size(); ++k) {
    moments_.push_back(make(state, moments, Category::optimizer));
  }
}

Unit::Transfer Unit::gather(comm::Communicator& shards) {
  if (!values_) {
    bind_values(
        device_->empty({layout_.total_numel()}, shard_values_.dtype(), Category::communication));
  }
  return [&shards, from = shard_values_, to = values_] { shards.all_gather(from, to).wait(); };
}

void Unit::release() {
  if (!sharding_.keeps_values()) bind_values({});
}

void Unit::begin_step() {
  reduced_ = false;
  open_ = false;  // a step that threw may have left it open
}

void Unit::open_gradients() {
  ENGINE_ASSERT(!open_ && trains(), "unit {}: gradients opened twice or without training", name_);
  open_ = true;
  if (!sharding_.keeps_gradients()) {
    whole_gradient_ = device_->empty({layout_.total_numel()}, DType::f32, Category::communication);
    zero_padding(whole_gradient_);
  }
  for (int i = 0; i < layout_.entries(); ++i) {
    Parameter& p = *parameters_[static_cast<std::size_t>(i)];
    p.bind_gradient(part(whole_gradient_, i));
    p.begin_accumulation();
  }
}

void Unit::zero_padding(const Tensor& whole) {
  std::int64_t end = 0;
  const auto zero_until = [&](std::int64_t begin) {
    if (end < begin) ops::fill(*device_, whole.slice(0, end, begin), 0);
  };
  for (int i = 0; i < layout_.entries(); ++i) {
    zero_until(layout_.offset(i));
    end = layout_.offset(i) + layout_.numel(i);
  }
  zero_until(layout_.total_numel());
}

void Unit::zero_unwritten() {
  for (int i = 0; i < layout_.entries(); ++i) {
    if (!parameters_[static_cast<std::size_t>(i)]->gradient()) {
      ops::fill(*device_, part(whole_gradient_, i), 0);
    }
  }
}

void Unit::close_gradients() {
  if (!open_) open_gradients();  // nobody wrote any
  zero_unwritten();
  open_ = false;
}

Unit::Transfer Unit::reduce(comm::Communicator& shards, comm::Communicator& replicas, bool last) {
  close_gradients();
  const Tensor whole = whole_gradient_;
  const bool scatter = !sharding_.keeps_state();
  const bool add = std::exchange(reduced_, true);
  ENGINE_ASSERT(!add || !sharding_.keeps_gradients(), "unit {}: reduced twice in a step", name_);
  Tensor wire = whole;
  if (sharding_.wire != DType::f32) {
    wire = device_->empty(whole.shape(), sharding_.wire, Category::communication);
  }
  // Where the sum over the shard group lands: in place, or beside what is there already.
  Tensor sum = scatter ? own_shard(wire) : wire;
  if (add && wire.dtype() == DType::f32) {
    sum = device_->empty(gradient_.shape(), DType::f32, Category::communication);
  } else if (scatter && !sharding_.keeps_gradients() && wire.dtype() == DType::f32) {
    sum = gradient_;
  }
  if (!sharding_.keeps_gradients()) {
    whole_gradient_ = {};
    for (Parameter* p : parameters_) p->bind_gradient({});
  }
  return [=, &shards, &replicas, gradient = gradient_] {
    if (wire.dtype() != DType::f32) narrow(whole, wire);
    if (scatter) {
      shards.reduce_scatter(wire, sum).wait();
    } else {
      shards.all_reduce(sum).wait();
    }
    if (last && !add) replicas.all_reduce(sum).wait();
    const bool in_place = sum.is_meta() || sum.raw() == gradient.raw();
    if (!in_place) put(sum, gradient, add);
    if (last && add) replicas.all_reduce(gradient).wait();
  };
}

double Unit::gradient_sum_of_squares() {
  return ops::sum_of_squares(*device_, sharding_.keeps_state() ? own_shard(gradient_) : gradient_);
}

void Unit::step(const optim::Optimizer& optimizer, const optim::StepScalars& scalars) {
  optim::FlatState state;
  state.master = master_;
  state.gradient = gradient_;
  state.moments = moments_;
  if (shard_values_.dtype() != DType::f32) {
    state.low_precision = sharding_.keeps_state() ? values_ : shard_values_;
  }
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

Tensor Unit::whole(const Tensor& state, comm::Communicator& shards) const {
  if (sharding_.keeps_state()) return state;
  Tensor all = device_->empty({layout_.total_numel()}, state.dtype(), Category::communication);
  shards.all_gather(state, all).wait();
  return all;
}

}  // namespace engine::parallel
