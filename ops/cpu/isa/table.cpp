#include "ops/cpu/isa/kernels.hpp"

ENGINE_ISA_BEGIN

/// The kernels compiled for this instruction set.
const Table& table();

const Table& table() {
  static constexpr Table kTable = {
      .name = ENGINE_CPU_NAME,
      .matmul = matmul,
      .embedding = embedding,
      .embedding_backward = embedding_backward,
      .position_embedding_backward = position_embedding_backward,
      .layer_norm = layer_norm,
      .layer_norm_backward = layer_norm_backward,
      .rms_norm = rms_norm,
      .rms_norm_backward = rms_norm_backward,
      .gelu = gelu,
      .gelu_backward = gelu_backward,
      .swiglu = swiglu,
      .swiglu_backward = swiglu_backward,
      .rope = rope,
      .attention = attention,
      .attention_backward = attention_backward,
      .cross_entropy = cross_entropy,
      .cross_entropy_with_gradient = cross_entropy_with_gradient,
      .add = add,
      .copy = copy,
      .fill = fill,
      .dropout = dropout,
      .sum_rows = sum_rows,
      .sum = sum,
      .sum_of_squares = sum_of_squares,
      .fma_loop = fma_loop,
  };
  return kTable;
}

ENGINE_ISA_END
