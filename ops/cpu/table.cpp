#if defined(ENGINE_CPU_HAS_LEVEL_3)
#include <cpuid.h>
#endif

#include "engine/ops/table.hpp"

namespace engine::ops {
namespace cpu {

namespace baseline {
const Table& table();
}
namespace avx2 {
const Table& table();
}
namespace avx512 {
const Table& table();
}

namespace {

#if defined(ENGINE_CPU_HAS_LEVEL_3)
/// Clang before 15 does not know "f16c" as a name for __builtin_cpu_supports.
bool has_f16c() {
  unsigned a = 0;
  unsigned b = 0;
  unsigned c = 0;
  unsigned d = 0;
  return __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & bit_F16C) != 0;
}
#endif

const Table& best_table() {
#if defined(ENGINE_CPU_HAS_LEVEL_3)
  __builtin_cpu_init();
  const bool level_3 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
                       __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2") &&
                       has_f16c();
#if defined(ENGINE_CPU_HAS_LEVEL_4)
  const bool level_4 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                       __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
                       __builtin_cpu_supports("avx512vl");
  if (level_3 && level_4) return avx512::table();
#endif
  if (level_3) return avx2::table();
#endif
  return baseline::table();
}

}  // namespace
}  // namespace cpu

const Table& cpu_table() {
  static const Table& table = cpu::best_table();
  return table;
}

}  // namespace engine::ops
