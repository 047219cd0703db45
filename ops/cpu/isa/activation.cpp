#include "ops/cpu/isa/kernels.hpp"
#include "ops/cpu/isa/math.hpp"
#include "ops/cpu/isa/support.hpp"

ENGINE_ISA_BEGIN
namespace {

// 0.5 (1 + tanh(u)) is sigmoid(2u), which has no cancellation.
constexpr float kTwiceRoot = 1.59576912160573F;  // 2 sqrt(2 / pi)
constexpr float kCubic = 0.044715F;

template <class T>
void gelu_run(const T* x, Index n, T* y) {
  for (Index i = 0; i < n; ++i) {
    const auto v = static_cast<float>(x[i]);
    y[i] = static_cast<T>(v * sigmoid(kTwiceRoot * v * (1.0F + kCubic * v * v)));
  }
}

template <class T>
void gelu_backward_run(const T* x, const T* dy, Index n, T* dx) {
  for (Index i = 0; i < n; ++i) {
    const auto v = static_cast<float>(x[i]);
    const Sigmoid s = sigmoid_pair(kTwiceRoot * v * (1.0F + kCubic * v * v));
    const float slope = kTwiceRoot * (1.0F + 3.0F * kCubic * v * v);
    const float derivative = s.value * (1.0F + v * s.complement * slope);
    dx[i] = static_cast<T>(static_cast<float>(dy[i]) * derivative);
  }
}

template <class T>
void swiglu_run(const T* gate, const T* up, Index n, T* y) {
  for (Index i = 0; i < n; ++i) {
    const auto g = static_cast<float>(gate[i]);
    y[i] = static_cast<T>(g * sigmoid(g) * static_cast<float>(up[i]));
  }
}

template <class T>
void swiglu_backward_run(const T* gate, const T* up, const T* dy, Index n, T* dgate, T* dup) {
  for (Index i = 0; i < n; ++i) {
    const auto g = static_cast<float>(gate[i]);
    const auto u = static_cast<float>(up[i]);
    const auto d = static_cast<float>(dy[i]);
    const Sigmoid s = sigmoid_pair(g);
    dgate[i] = static_cast<T>(d * u * s.value * (1.0F + g * s.complement));
    dup[i] = static_cast<T>(d * g * s.value);
  }
}

}  // namespace

void gelu(DeviceContext& device, const Tensor& x, const Tensor& y) {
  with_type(x.dtype(), [&]<class T>(T) {
    for_chunks(device, x.numel(), kElementGrain, [&](Index begin, Index end) {
      gelu_run(x.data<T>() + begin, end - begin, y.data<T>() + begin);
    });
  });
}

void gelu_backward(DeviceContext& device, const Tensor& x, const Tensor& dy, const Tensor& dx) {
  with_type(x.dtype(), [&]<class T>(T) {
    for_chunks(device, x.numel(), kElementGrain, [&](Index begin, Index end) {
      gelu_backward_run(x.data<T>() + begin, dy.data<T>() + begin, end - begin,
                        dx.data<T>() + begin);
    });
  });
}

void swiglu(DeviceContext& device, const Tensor& gate, const Tensor& up, const Tensor& y) {
  with_type(gate.dtype(), [&]<class T>(T) {
    for_chunks(device, gate.numel(), kElementGrain, [&](Index begin, Index end) {
      swiglu_run(gate.data<T>() + begin, up.data<T>() + begin, end - begin, y.data<T>() + begin);
    });
  });
}

void swiglu_backward(DeviceContext& device, const Tensor& gate, const Tensor& up, const Tensor& dy,
                     const Tensor& dgate, const Tensor& dup) {
  with_type(gate.dtype(), [&]<class T>(T) {
    for_chunks(device, gate.numel(), kElementGrain, [&](Index begin, Index end) {
      swiglu_backward_run(gate.data<T>() + begin, up.data<T>() + begin, dy.data<T>() + begin,
                          end - begin, dgate.data<T>() + begin, dup.data<T>() + begin);
    });
  });
}

ENGINE_ISA_END
