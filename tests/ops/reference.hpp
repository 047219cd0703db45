#pragma once
// What the operator tests share: devices, random tensors, comparison with float64 references.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "engine/core/device_context.hpp"
#include "engine/core/philox.hpp"
#include "engine/ops/table.hpp"

namespace engine::ops::cpu::baseline {
const Table& table();
}

namespace engine::ops::test {

using Values = std::vector<double>;

inline std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

inline std::unique_ptr<DeviceContext> make_device(int threads = 2, bool baseline = false) {
  DeviceContext::Options options;
  options.threads = threads;
  options.arena_bytes = std::size_t{1} << 30;
  return std::make_unique<DeviceContext>(options,
                                         baseline ? &cpu::baseline::table() : &cpu_table());
}

inline std::unique_ptr<DeviceContext> make_meta_device() {
  DeviceContext::Options options;
  options.device = {DeviceType::meta, 0};
  return make_device_context(options);
}

inline Tensor empty(DeviceContext& device, const Shape& shape, DType dtype = DType::f32) {
  return device.empty(shape, dtype, Category::activations);
}

/// Calls f(offset in elements) for every element in row-major order.
template <class F>
void for_elements(const Tensor& x, const F& f) {
  for (std::int64_t i = 0; i < x.numel(); ++i) {
    std::int64_t offset = 0;
    std::int64_t rest = i;
    for (int dim = x.rank() - 1; dim >= 0; --dim) {
      offset += rest % x.size(dim) * x.stride(dim);
      rest /= x.size(dim);
    }
    f(offset);
  }
}

/// Elements in row-major order, as doubles.
inline Values values(const Tensor& x) {
  Values result;
  for_elements(x, [&](std::int64_t i) {
    if (x.dtype() == DType::bf16) {
      result.push_back(static_cast<double>(static_cast<float>(x.data<bf16>()[i])));
    } else if (x.dtype() == DType::i32) {
      result.push_back(x.data<std::int32_t>()[i]);
    } else {
      result.push_back(static_cast<double>(x.data<float>()[i]));
    }
  });
  return result;
}

inline void assign(const Tensor& x, const Values& from) {
  std::size_t next = 0;
  for_elements(x, [&](std::int64_t i) {
    const double value = from[next++];
    if (x.dtype() == DType::bf16) {
      x.data<bf16>()[i] = bf16(static_cast<float>(value));
    } else if (x.dtype() == DType::i32) {
      x.data<std::int32_t>()[i] = static_cast<std::int32_t>(value);
    } else {
      x.data<float>()[i] = static_cast<float>(value);
    }
  });
}

inline Values normals(std::int64_t n, std::uint64_t seed, double scale = 1) {
  Values result(at(n));
  for (std::int64_t i = 0; i < n; ++i) {
    result[at(i)] =
        scale * philox::normal(philox::key(seed, "test"), static_cast<std::uint64_t>(i));
  }
  return result;
}

inline void randomize(const Tensor& x, std::uint64_t seed, double scale = 1) {
  assign(x, normals(x.numel(), seed, scale));
}

inline Tensor random(DeviceContext& device, const Shape& shape, DType dtype, std::uint64_t seed,
                     double scale = 1) {
  Tensor x = empty(device, shape, dtype);
  randomize(x, seed, scale);
  return x;
}

inline Tensor tokens(DeviceContext& device, const Shape& shape, std::int64_t vocabulary,
                     std::uint64_t seed) {
  Tensor x = empty(device, shape, DType::i32);
  for (std::int64_t i = 0; i < x.numel(); ++i) {
    const std::uint32_t word =
        philox::word(philox::key(seed, "tokens"), static_cast<std::uint64_t>(i));
    x.data<std::int32_t>()[i] =
        static_cast<std::int32_t>(word % static_cast<std::uint64_t>(vocabulary));
  }
  return x;
}

/// NaN everywhere: what an overwritten output may hold.
inline Tensor poisoned(DeviceContext& device, const Shape& shape, DType dtype = DType::f32) {
  Tensor x = empty(device, shape, dtype);
  assign(x, Values(at(x.numel()), std::nan("")));
  return x;
}

/// Relative to each value and to their root mean square:
/// |actual - expected| <= bound (|expected| + rms + floor).
inline void expect_close(const Values& actual, const Values& expected, double bound,
                         const std::string& what = "", double floor = 0) {
  ASSERT_EQ(actual.size(), expected.size()) << what;
  if (expected.empty()) return;
  double squares = 0;
  for (const double e : expected) squares += e * e;
  const double rms = std::sqrt(squares / static_cast<double>(expected.size()));
  for (std::size_t i = 0; i < expected.size(); ++i) {
    ASSERT_LE(std::abs(actual[i] - expected[i]),
              bound * (std::abs(expected[i]) + rms + floor) + 1e-37)
        << what << " element " << i << ": " << actual[i] << ", expected " << expected[i];
  }
}

inline void expect_close(const Tensor& actual, const Values& expected, double bound,
                         const std::string& what = "", double floor = 0) {
  expect_close(values(actual), expected, bound, what, floor);
}

inline std::vector<std::byte> bits(const Tensor& x) {
  std::vector<std::byte> result;
  const std::size_t size = size_of(x.dtype());
  for_elements(x, [&](std::int64_t i) {
    const auto* const from = static_cast<const std::byte*>(x.raw()) + at(i) * size;
    result.insert(result.end(), from, from + size);
  });
  return result;
}

inline void expect_same_bits(const Tensor& a, const Tensor& b, const std::string& what = "") {
  EXPECT_TRUE(bits(a) == bits(b)) << what;
}

/// Runs the same work with 1, 2 and 3 threads and expects the same bits of what it returns.
inline void expect_threads_do_not_matter(
    const std::function<std::vector<Tensor>(DeviceContext&)>& work) {
  const auto one = make_device(1);
  const std::vector<Tensor> expected = work(*one);
  for (const int threads : {2, 3}) {
    const auto device = make_device(threads);
    const std::vector<Tensor> actual = work(*device);
    for (std::size_t i = 0; i < expected.size(); ++i) {
      expect_same_bits(actual[i], expected[i],
                       "output " + std::to_string(i) + ", threads " + std::to_string(threads));
    }
  }
}

/// Checks an analytic gradient dx of sum(dy * f(x)) against central differences.
inline void expect_gradient(const std::function<Values(const Values&)>& f, Values x,
                            const Values& dy, const Values& dx) {
  const auto loss = [&] {
    const Values y = f(x);
    return std::inner_product(y.begin(), y.end(), dy.begin(), 0.0);
  };
  ASSERT_EQ(x.size(), dx.size());
  Values differences(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) {
    constexpr double kStep = 1e-5;
    const double middle = x[i];
    x[i] = middle + kStep;
    const double above = loss();
    x[i] = middle - kStep;
    differences[i] = (above - loss()) / (2 * kStep);
    x[i] = middle;
  }
  expect_close(dx, differences, 1e-7, "finite differences");
}

/// Fixture over the kernels of this machine and the baseline ones, in f32 and bf16.
struct Setup {
  const char* name;
  bool baseline;
  DType dtype;
};

class OpTest : public testing::TestWithParam<Setup> {
 protected:
  OpTest() : device_(make_device(2, GetParam().baseline)) {}

  DeviceContext& device() { return *device_; }
  DType dtype() const { return GetParam().dtype; }
  /// Bound of results that are rounded once: `f32_bound`, or that of bf16's eight bits.
  double bound(double f32_bound = 1e-6) const {
    return dtype() == DType::bf16 ? 0x1p-8 : f32_bound;
  }
  Tensor rand(const Shape& shape, std::uint64_t seed, double scale = 1) {
    return random(*device_, shape, dtype(), seed, scale);
  }
  Tensor nans(const Shape& shape) { return poisoned(*device_, shape, dtype()); }
  Tensor nans_f32(const Shape& shape) { return poisoned(*device_, shape); }

 private:
  std::unique_ptr<DeviceContext> device_;
};

inline std::string setup_name(const testing::TestParamInfo<Setup>& setup) {
  return setup.param.name;
}

#define ENGINE_OP_TEST(Suite)                                                             \
  class Suite : public OpTest {};                                                         \
  INSTANTIATE_TEST_SUITE_P(                                                               \
      Cpu, Suite,                                                                         \
      testing::Values(Setup{"F32", false, DType::f32}, Setup{"Bf16", false, DType::bf16}, \
                      Setup{"BaselineF32", true, DType::f32},                             \
                      Setup{"BaselineBf16", true, DType::bf16}),                          \
      setup_name)

}  // namespace engine::ops::test
