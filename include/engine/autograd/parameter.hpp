#pragma once
#include <string>

#include "engine/core/tensor.hpp"
#include "engine/ops/types.hpp"

namespace engine::autograd {

/// How a parameter's elements start.
struct Init {
  enum class Kind : std::uint8_t { zeros, ones, normal } kind = Kind::zeros;
  double stddev = 0;

  static Init zeros() { return {Kind::zeros, 0}; }
  static Init ones() { return {Kind::ones, 0}; }
  static Init normal(double stddev) { return {Kind::normal, stddev}; }
};

/// What a parameter is to an optimizer.
enum class Role : std::uint8_t {
  matrix,     ///< a hidden weight matrix: decays, and Muon orthogonalises it
  embedding,  ///< a table of rows (embedding, output head): decays
  vector,     ///< a norm weight or a bias: does not decay
};

/// What is known about a parameter before it has memory.
struct ParameterSpec {
  std::string name;  ///< canonical logical name; keys its initial values and its place in files
  Shape shape;
  Init init;
  Role role = Role::matrix;
  int sections = 1;  ///< equal pieces along `section_dim` that are matrices of their own
  int section_dim = 0;
};

/// A trainable tensor with a stable address. Its memory belongs to a unit, which binds it; a tape
/// keeps the `Parameter*`, never the storage, because a unit may release it in between.
class Parameter {
 public:
  explicit Parameter(ParameterSpec spec) : spec_(std::move(spec)) {}
  Parameter(const Parameter&) = delete;
  Parameter& operator=(const Parameter&) = delete;

  const std::string& name() const noexcept { return spec_.name; }
  const ParameterSpec& spec() const noexcept { return spec_; }
  const Shape& shape() const noexcept { return spec_.shape; }

  /// Current value in the compute type. Throws Errc::internal while the unit is not resident.
  const Tensor& value() const {
    ENGINE_ASSERT(static_cast<bool>(value_), "parameter {} read while its unit is not resident",
                  name());
    return value_;
  }

  struct GradWrite {
    Tensor view;       ///< f32, the parameter's shape
    ops::Write write;  ///< the first writer of a step overwrites, later ones add
  };
  /// Where to put a gradient contribution; the caller must write it.
  GradWrite grad_write() {
    ENGINE_ASSERT(static_cast<bool>(gradient_), "parameter {} has no gradient buffer", name());
    const ops::Write write = written_ ? ops::Write::accumulate : ops::Write::overwrite;
    written_ = true;
    return {gradient_, write};
  }
  /// Gradient written since `begin_accumulation`, or an undefined tensor.
  Tensor gradient() const { return written_ ? gradient_ : Tensor{}; }

  /// For the unit that owns the memory; an undefined tensor unbinds.
  void bind_value(Tensor value) { value_ = std::move(value); }
  void bind_gradient(Tensor gradient) { gradient_ = std::move(gradient); }
  void begin_accumulation() noexcept { written_ = false; }

 private:
  ParameterSpec spec_;
  Tensor value_;
  Tensor gradient_;
  bool written_ = false;
};

}  // namespace engine::autograd
