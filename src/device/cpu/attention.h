#pragma once
// Attention on the CPU, in the caller with its OpenMP threads. Operands are checked before.

#include "skrull/device/ops.h"

namespace skrull {

void cpu_attention_forward(const AttentionForward& attention);
void cpu_attention_backward(const AttentionBackward& attention);
void cpu_attention_delta(std::int64_t head_dim, ConstTensorView out, ConstTensorView dout, TensorView delta);
void cpu_attention_merge(std::int64_t head_dim, ConstTensorView partial_out, ConstTensorView partial_lse,
                         TensorView out, TensorView lse);

}  // namespace skrull
