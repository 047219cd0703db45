#include "ops/check.hpp"

namespace engine::ops::check {

void shape(std::string_view op, std::string_view argument, const Tensor& x, const Shape& expected) {
  ENGINE_ASSERT(x && x.shape() == expected, "{}: {}: expected shape {}, got {}", op, argument,
                expected.str(), x ? x.shape().str() : "an undefined tensor");
}

void dtype(std::string_view op, std::string_view argument, const Tensor& x, DType expected) {
  ENGINE_ASSERT(x && x.dtype() == expected, "{}: {}: expected type {}, got {}", op, argument,
                name(expected), x ? name(x.dtype()) : "an undefined tensor");
}

void real(std::string_view op, std::string_view argument, const Tensor& x) {
  ENGINE_ASSERT(x && (x.dtype() == DType::f32 || x.dtype() == DType::bf16),
                "{}: {}: expected type f32 or bf16, got {}", op, argument,
                x ? name(x.dtype()) : "an undefined tensor");
}

void contiguous(std::string_view op, std::string_view argument, const Tensor& x) {
  ENGINE_ASSERT(x && x.contiguous(), "{}: {}: expected a contiguous tensor, got {}", op, argument,
                x ? "strides in shape " + x.shape().str() : "an undefined one");
}

void rank(std::string_view op, std::string_view argument, const Tensor& x, int expected) {
  ENGINE_ASSERT(x && x.rank() == expected, "{}: {}: expected rank {}, got {}", op, argument,
                expected, x ? x.shape().str() : "an undefined tensor");
}

void tensor(std::string_view op, std::string_view argument, const Tensor& x,
            const Shape& expected_shape, DType expected_dtype) {
  shape(op, argument, x, expected_shape);
  dtype(op, argument, x, expected_dtype);
  contiguous(op, argument, x);
}

void heads(std::string_view op, std::string_view argument, const Tensor& x,
           const Shape& expected_shape, DType expected_dtype) {
  shape(op, argument, x, expected_shape);
  dtype(op, argument, x, expected_dtype);
  ENGINE_ASSERT(
      (x.size(3) <= 1 || x.stride(3) == 1) && (x.size(2) <= 1 || x.stride(2) == x.size(3)),
      "{}: {}: expected contiguous [heads, D], got strides {} and {} in shape {}", op, argument,
      x.stride(2), x.stride(3), x.shape().str());
}

}  // namespace engine::ops::check
