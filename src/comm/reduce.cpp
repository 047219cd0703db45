#include "reduce.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <type_traits>

#include "engine/core/error.hpp"
#include "narrow.hpp"

namespace engine::comm::detail {
namespace {

constexpr std::int64_t kBlock = 2048;  // elements: the accumulator and two inputs stay in L1

template <class T>
using Wide = std::conditional_t<std::is_integral_v<T>, T, float>;

template <ReduceOp op, class W>
W combine(W a, W b) {
  if constexpr (op == ReduceOp::sum) {
    if constexpr (std::is_integral_v<W>) {
      using U = std::make_unsigned_t<W>;
      return static_cast<W>(static_cast<U>(a) + static_cast<U>(b));
    } else {
      return a + b;
    }
  } else if constexpr (std::is_integral_v<W>) {
    return (op == ReduceOp::max ? b > a : b < a) ? b : a;
  } else {
    return ((op == ReduceOp::max ? b > a : b < a) || b != b) ? b : a;
  }
}

template <class T, ReduceOp op>
void first_two(Wide<T>* __restrict sum, const T* a, const T* b, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) sum[i] = combine<op>(widen(a[i]), widen(b[i]));
}

template <class T, ReduceOp op>
void add(Wide<T>* __restrict sum, const T* a, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) sum[i] = combine<op>(sum[i], widen(a[i]));
}

/// The sums as T: rounded into `buffer` where they are wider.
template <class T>
const T* rounded(const Wide<T>* sum, T* __restrict buffer, std::int64_t n) {
  if constexpr (std::is_same_v<T, Wide<T>>) {
    return sum;
  } else {
    for (std::int64_t i = 0; i < n; ++i) buffer[i].bits = narrow<T>(sum[i]);
    return buffer;
  }
}

template <class T, ReduceOp op>
void reduce_as(std::span<const std::byte* const> inputs, std::span<std::byte* const> outputs,
               std::int64_t n) {
  alignas(64) std::array<Wide<T>, kBlock> sum;
  alignas(64) std::array<T, kBlock> buffer;
  const auto at = [](auto* bytes, std::int64_t i) {
    using Element =
        std::conditional_t<std::is_const_v<std::remove_pointer_t<decltype(bytes)>>, const T, T>;
    return reinterpret_cast<Element*>(bytes) + i;
  };
  for (std::int64_t begin = 0; begin < n; begin += kBlock) {
    const std::int64_t size = std::min(kBlock, n - begin);
    first_two<T, op>(sum.data(), at(inputs[0], begin), at(inputs[1], begin), size);
    for (std::size_t k = 2; k < inputs.size(); ++k)
      add<T, op>(sum.data(), at(inputs[k], begin), size);
    const T* const result = rounded<T>(sum.data(), buffer.data(), size);
    for (std::byte* const out : outputs) std::copy_n(result, size, at(out, begin));
  }
}

template <class T>
void reduce_typed(ReduceOp op, std::span<const std::byte* const> inputs,
                  std::span<std::byte* const> outputs, std::int64_t n) {
  switch (op) {
    case ReduceOp::sum:
      return reduce_as<T, ReduceOp::sum>(inputs, outputs, n);
    case ReduceOp::max:
      return reduce_as<T, ReduceOp::max>(inputs, outputs, n);
    case ReduceOp::min:
      return reduce_as<T, ReduceOp::min>(inputs, outputs, n);
  }
}

}  // namespace

void reduce(DType dtype, ReduceOp op, std::span<const std::byte* const> inputs,
            std::span<std::byte* const> outputs, std::int64_t n) {
  ENGINE_ASSERT(inputs.size() >= 2, "a reduction of {} inputs", inputs.size());
  switch (dtype) {
    case DType::f32:
      return reduce_typed<float>(op, inputs, outputs, n);
    case DType::bf16:
      return reduce_typed<bf16>(op, inputs, outputs, n);
    case DType::f16:
      return reduce_typed<f16>(op, inputs, outputs, n);
    case DType::i32:
      return reduce_typed<std::int32_t>(op, inputs, outputs, n);
    case DType::i64:
      return reduce_typed<std::int64_t>(op, inputs, outputs, n);
    case DType::u16:
    case DType::u8:
      break;
  }
  ENGINE_ASSERT(false, "{} cannot be reduced", name(dtype));
}

}  // namespace engine::comm::detail
