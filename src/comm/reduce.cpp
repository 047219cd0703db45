#include "reduce.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <type_traits>

#include "engine/core/error.hpp"

namespace engine::comm::detail {
namespace {

constexpr std::int64_t kBlock = 2048;  // elements that stay in the first cache

template <ReduceOp op, class A>
A combine(A a, A b) {
  if constexpr (op == ReduceOp::sum) return a + b;
  if constexpr (op == ReduceOp::max) return a < b ? b : a;
  if constexpr (op == ReduceOp::min) return b < a ? b : a;
}

template <class T, ReduceOp op>
void reduce_typed(std::span<const void* const> inputs, std::span<void* const> outputs,
                  std::int64_t count) {
  using A = std::conditional_t<std::is_integral_v<T>, T, float>;
  std::array<A, kBlock> sum;
  for (std::int64_t begin = 0; begin < count; begin += kBlock) {
    const std::int64_t n = std::min(kBlock, count - begin);
    const T* first = static_cast<const T*>(inputs[0]) + begin;
    A* acc = sum.data();
    for (std::int64_t i = 0; i < n; ++i) acc[i] = static_cast<A>(first[i]);
    for (std::size_t r = 1; r < inputs.size(); ++r) {
      const T* x = static_cast<const T*>(inputs[r]) + begin;
      for (std::int64_t i = 0; i < n; ++i) acc[i] = combine<op>(acc[i], static_cast<A>(x[i]));
    }
    T* result = static_cast<T*>(outputs[0]) + begin;
    for (std::int64_t i = 0; i < n; ++i) result[i] = static_cast<T>(acc[i]);
    for (std::size_t r = 1; r < outputs.size(); ++r) {
      std::memcpy(static_cast<T*>(outputs[r]) + begin, result,
                  static_cast<std::size_t>(n) * sizeof(T));
    }
  }
}

template <class T>
void reduce_any(std::span<const void* const> inputs, std::span<void* const> outputs,
                std::int64_t count, ReduceOp op) {
  switch (op) {
    case ReduceOp::sum:
      return reduce_typed<T, ReduceOp::sum>(inputs, outputs, count);
    case ReduceOp::max:
      return reduce_typed<T, ReduceOp::max>(inputs, outputs, count);
    case ReduceOp::min:
      return reduce_typed<T, ReduceOp::min>(inputs, outputs, count);
  }
}

}  // namespace

void reduce(std::span<const void* const> inputs, std::span<void* const> outputs, std::int64_t count,
            DType dtype, ReduceOp op) {
  switch (dtype) {
    case DType::f32:
      return reduce_any<float>(inputs, outputs, count, op);
    case DType::bf16:
      return reduce_any<bf16>(inputs, outputs, count, op);
    case DType::f16:
      return reduce_any<f16>(inputs, outputs, count, op);
    case DType::i32:
      return reduce_any<std::int32_t>(inputs, outputs, count, op);
    case DType::i64:
      return reduce_any<std::int64_t>(inputs, outputs, count, op);
    default:
      ENGINE_ASSERT(false, "{} cannot be reduced", name(dtype));
  }
}

}  // namespace engine::comm::detail
