#pragma once
// Argument checks of the operators. Failures are bugs of the caller: Errc::internal.
#include <string_view>

#include "engine/core/tensor.hpp"

namespace engine::ops::check {

/// Throws unless `x` has this shape.
void shape(std::string_view op, std::string_view argument, const Tensor& x, const Shape& expected);
/// Throws unless `x` has this element type.
void dtype(std::string_view op, std::string_view argument, const Tensor& x, DType expected);
/// Throws unless `x` is f32 or bf16.
void real(std::string_view op, std::string_view argument, const Tensor& x);
/// Throws unless `x` is defined and row-major without gaps.
void contiguous(std::string_view op, std::string_view argument, const Tensor& x);
/// Throws unless `x` is of this rank.
void rank(std::string_view op, std::string_view argument, const Tensor& x, int expected);
/// Shape, type and contiguity at once.
void tensor(std::string_view op, std::string_view argument, const Tensor& x, const Shape& shape,
            DType dtype);
/// Throws unless `x` [B,T,heads,D] has contiguous [heads,D]; its rows may be strided.
void heads(std::string_view op, std::string_view argument, const Tensor& x, const Shape& shape,
           DType dtype);

}  // namespace engine::ops::check
