#include "engine/ops/profile.hpp"

#include <algorithm>
#include <chrono>
#include <type_traits>
#include <utility>
#include <vector>

#include "engine/ops/table.hpp"

namespace engine::ops {
namespace {

/// An operator's name as a template argument.
struct Name {
  char text[40] = {};

  template <std::size_t N>
  constexpr Name(const char (&literal)[N]) {  // NOLINT(google-explicit-constructor)
    std::copy(literal, literal + N, text);
  }
};

template <class T>
double bytes_of(const T& argument) {
  if constexpr (std::is_same_v<T, Tensor>) {
    return argument ? static_cast<double>(argument.bytes()) : 0;
  } else {
    return 0;
  }
}

template <Name kName, auto kMember>
struct Timed;

/// A kernel that times the one of the same name in the table below.
template <Name kName, class R, class... Args, R (*Table::*kMember)(DeviceContext&, Args...)>
struct Timed<kName, kMember> {
  static R call(DeviceContext& device, Args... args) {
    Profile& profile = *device.profile();
    const double bytes = (bytes_of<std::remove_cvref_t<Args>>(args) + ... + 0.0);
    const double flops = profile.take_flops();
    const auto begin = std::chrono::steady_clock::now();
    const auto finish = [&] {
      const std::chrono::duration<double, std::milli> ms = std::chrono::steady_clock::now() - begin;
      profile.add(kName.text, ms.count(), flops, bytes);
    };
    if constexpr (std::is_void_v<R>) {
      (profile.kernels()->*kMember)(device, args...);
      finish();
    } else {
      const R result = (profile.kernels()->*kMember)(device, args...);
      finish();
      return result;
    }
  }
};

#define ENGINE_TIMED(op) .op = Timed<#op, &Table::op>::call

/// All of `kernels`, timed.
Table timed(const Table& kernels) {
  return {.name = kernels.name,
          ENGINE_TIMED(matmul),
          ENGINE_TIMED(embedding),
          ENGINE_TIMED(embedding_backward),
          ENGINE_TIMED(position_embedding_backward),
          ENGINE_TIMED(layer_norm),
          ENGINE_TIMED(layer_norm_backward),
          ENGINE_TIMED(rms_norm),
          ENGINE_TIMED(rms_norm_backward),
          ENGINE_TIMED(gelu),
          ENGINE_TIMED(gelu_backward),
          ENGINE_TIMED(swiglu),
          ENGINE_TIMED(swiglu_backward),
          ENGINE_TIMED(rope),
          ENGINE_TIMED(attention),
          ENGINE_TIMED(attention_backward),
          ENGINE_TIMED(cross_entropy),
          ENGINE_TIMED(cross_entropy_with_gradient),
          ENGINE_TIMED(add),
          ENGINE_TIMED(copy),
          ENGINE_TIMED(fill),
          ENGINE_TIMED(dropout),
          ENGINE_TIMED(sum_rows),
          ENGINE_TIMED(sum),
          ENGINE_TIMED(sum_of_squares),
          .fma_loop = kernels.fma_loop};
}

#undef ENGINE_TIMED

std::string row(std::string_view name, double calls, const Profile::Entry& e, double steps,
                double total_ms) {
  const auto rate = [&](double work) {
    return e.ms > 0 && work > 0 ? fmt::format("{:.1f}", work / e.ms / 1e6) : std::string("-");
  };
  return fmt::format("{:<30}{:>9.1f}{:>12.2f}{:>8.1f}%{:>10}{:>8}\n", name, calls, e.ms / steps,
                     total_ms > 0 ? 100 * e.ms / total_ms : 0.0, rate(e.flops), rate(e.bytes));
}

}  // namespace

Profile::Profile(DeviceContext& device)
    : device_(&device), kernels_(device.kernels()), counted_flops_(device.counters().matmul_flops) {
  ENGINE_CHECK(kernels_ != nullptr, Errc::invalid_argument, "device {} has no kernels to profile",
               device.device().str());
  ENGINE_ASSERT(device.profile() == nullptr, "a profile of device {} runs already",
                device.device().str());
  timed_ = std::make_unique<Table>(timed(*kernels_));
  device.set_profile(this, timed_.get());
}

Profile::~Profile() { device_->set_profile(nullptr, kernels_); }

void Profile::add(std::string_view name, double ms, double flops, double bytes) {
  auto it = entries_.find(name);
  if (it == entries_.end()) it = entries_.emplace(std::string(name), Entry{}).first;
  it->second.calls += 1;
  it->second.ms += ms;
  it->second.flops += flops;
  it->second.bytes += bytes;
}

double Profile::take_flops() noexcept {
  const double now = device_->counters().matmul_flops;
  return now - std::exchange(counted_flops_, now);
}

std::string Profile::table(double total_ms, std::int64_t steps, double peak_gflops) const {
  const auto n = static_cast<double>(std::max<std::int64_t>(steps, 1));
  std::vector<std::pair<std::string, Entry>> rows(entries_.begin(), entries_.end());
  std::sort(rows.begin(), rows.end(),
            [](const auto& a, const auto& b) { return a.second.ms > b.second.ms; });
  Entry all;
  std::string text = fmt::format("{:<30}{:>9}{:>12}{:>9}{:>10}{:>8}\n", "op", "calls", "ms a step",
                                 "share", "GFLOP/s", "GB/s");
  for (const auto& [name, e] : rows) {
    text += row(name, static_cast<double>(e.calls) / n, e, n, total_ms);
    all.ms += e.ms;
    all.flops += e.flops;
  }
  Entry other;
  other.ms = std::max(total_ms - all.ms, 0.0);
  text += row("other", 0, other, n, total_ms);
  Entry whole;
  whole.ms = total_ms;
  whole.flops = all.flops;
  text += row("step", 0, whole, n, total_ms);
  if (peak_gflops > 0 && total_ms > 0) {
    text += fmt::format("{:.0f}% of the measured fp32 peak of {:.0f} GFLOP/s\n",
                        100 * whole.flops / total_ms / 1e6 / peak_gflops, peak_gflops);
  }
  return text;
}

}  // namespace engine::ops
