#pragma once
// The kernel sources of this folder are compiled once per instruction set, with ENGINE_CPU_LEVEL 1
// (what the compiler targets by default), 3 (AVX2, FMA) or 4 (AVX-512). Code between
// ENGINE_ISA_BEGIN and ENGINE_ISA_END lies in a namespace of its own and uses that instruction set;
// whatever comes from headers does not, so the linker may share it between the copies.
#if ENGINE_CPU_LEVEL == 4
#define ENGINE_CPU_ISA avx512
#define ENGINE_CPU_NAME "cpu avx512"
#elif ENGINE_CPU_LEVEL == 3
#define ENGINE_CPU_ISA avx2
#define ENGINE_CPU_NAME "cpu avx2"
#else
#define ENGINE_CPU_ISA baseline
#define ENGINE_CPU_NAME "cpu baseline"
#endif

// clang-format off
#if ENGINE_CPU_LEVEL == 1
#define ENGINE_ISA_TARGET
#define ENGINE_ISA_UNTARGET
#elif defined(__clang__)
#if ENGINE_CPU_LEVEL == 4
#define ENGINE_ISA_TARGET \
  _Pragma("clang attribute push(__attribute__((target(\"avx2,fma,bmi,bmi2,f16c,lzcnt,movbe,avx512f,avx512bw,avx512cd,avx512dq,avx512vl\"))), apply_to = function)")
#else
#define ENGINE_ISA_TARGET \
  _Pragma("clang attribute push(__attribute__((target(\"avx2,fma,bmi,bmi2,f16c,lzcnt,movbe\"))), apply_to = function)")
#endif
#define ENGINE_ISA_UNTARGET _Pragma("clang attribute pop")
#else
#if ENGINE_CPU_LEVEL == 4
#define ENGINE_ISA_TARGET \
  _Pragma("GCC push_options") \
  _Pragma("GCC target(\"avx2,fma,bmi,bmi2,f16c,lzcnt,movbe,avx512f,avx512bw,avx512cd,avx512dq,avx512vl,prefer-vector-width=512\")")
#else
#define ENGINE_ISA_TARGET \
  _Pragma("GCC push_options") \
  _Pragma("GCC target(\"avx2,fma,bmi,bmi2,f16c,lzcnt,movbe\")")
#endif
#define ENGINE_ISA_UNTARGET _Pragma("GCC pop_options")
#endif
// clang-format on

#define ENGINE_ISA_BEGIN \
  ENGINE_ISA_TARGET      \
  namespace engine::ops::cpu::ENGINE_CPU_ISA {
#define ENGINE_ISA_END \
  }                    \
  ENGINE_ISA_UNTARGET
