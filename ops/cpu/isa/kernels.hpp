#pragma once
// The kernels of one instruction set: the entries of ops::Table.
#include "engine/ops/table.hpp"
#include "ops/cpu/isa/isa.hpp"

ENGINE_ISA_BEGIN

void matmul(DeviceContext&, const Tensor& a, Trans, const Tensor& b, Trans, const Tensor& c, Write,
            const Tensor& bias);
void embedding(DeviceContext&, const Tensor& tokens, const Tensor& table, const Tensor& positions,
               std::int64_t first_position, const Tensor& out);
void embedding_backward(DeviceContext&, const Tensor& tokens, const Tensor& dy,
                        const Tensor& dtable, Write);
void position_embedding_backward(DeviceContext&, const Tensor& dy, const Tensor& dpositions, Write);
void layer_norm(DeviceContext&, const Tensor& x, const Tensor& weight, const Tensor& bias,
                double eps, const Tensor& y, const Tensor& mean, const Tensor& rstd);
void layer_norm_backward(DeviceContext&, const Tensor& dy, const Tensor& x, const Tensor& weight,
                         const Tensor& mean, const Tensor& rstd, const Tensor& dx, Write,
                         const Tensor& dweight, const Tensor& dbias, Write);
void rms_norm(DeviceContext&, const Tensor& x, const Tensor& weight, double eps, const Tensor& y,
              const Tensor& rstd);
void rms_norm_backward(DeviceContext&, const Tensor& dy, const Tensor& x, const Tensor& weight,
                       const Tensor& rstd, const Tensor& dx, Write, const Tensor& dweight, Write);
void gelu(DeviceContext&, const Tensor& x, const Tensor& y);
void gelu_backward(DeviceContext&, const Tensor& x, const Tensor& dy, const Tensor& dx);
void swiglu(DeviceContext&, const Tensor& gate, const Tensor& up, const Tensor& y);
void swiglu_backward(DeviceContext&, const Tensor& gate, const Tensor& up, const Tensor& dy,
                     const Tensor& dgate, const Tensor& dup);
void rope(DeviceContext&, const Tensor& x, double theta, std::int64_t first_position, bool inverse,
          const Tensor& y);
void attention(DeviceContext&, const Tensor& q, const Tensor& k, const Tensor& v, double scale,
               const Dropout&, const Tensor& out, const Tensor& log_sum_exp);
void attention_backward(DeviceContext&, const Tensor& dout, const Tensor& q, const Tensor& k,
                        const Tensor& v, const Tensor& out, const Tensor& log_sum_exp, double scale,
                        const Dropout&, const Tensor& dq, const Tensor& dk, const Tensor& dv);
void cross_entropy(DeviceContext&, const Tensor& logits, const Tensor& targets, const Tensor& loss);
void cross_entropy_with_gradient(DeviceContext&, const Tensor& logits, const Tensor& targets,
                                 double grad_scale, const Tensor& loss);
void add(DeviceContext&, const Tensor& a, const Tensor& b, const Tensor& y);
void copy(DeviceContext&, const Tensor& x, const Tensor& y);
void fill(DeviceContext&, const Tensor& x, float value);
void dropout(DeviceContext&, const Tensor& x, const Dropout&, const Tensor& y);
void sum_rows(DeviceContext&, const Tensor& x, const Tensor& sum, Write);
double sum(DeviceContext&, const Tensor& x);
double sum_of_squares(DeviceContext&, const Tensor& x);
/// Runs `rounds` rounds of independent multiply-adds in registers; returns the FLOPs done.
double fma_loop(std::int64_t rounds);

ENGINE_ISA_END
