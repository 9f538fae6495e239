#pragma once
// Flash attention over segments on the CPU (Dao 2023, "FlashAttention-2"; backward with the global log-sum-exp, so that
// partial segments add up). The meaning of every argument: skrull/device/ops.h.
//
// Inputs fp32 or bf16, any head size; everything is computed in fp32. Runs on OpenMP's threads; no bit of a result
// depends on their number, nor on what else is packed beside a segment. Weights below 2^-64 of a row's largest count as
// 0. Scratch memory is kept by the calling thread from call to call: attention_scratch_bytes() per OpenMP thread,
// whatever the lengths. Wrong shapes, dtypes or segments throw RunFailure with the values.

#include <cstdint>

#include "skrull/device/ops.h"

namespace skrull {

void cpu_attention_forward(const AttentionForward& attention);
void cpu_attention_backward(const AttentionBackward& attention);

/// delta[T, heads] fp32 = sum over a head of out * dout; out and dout [T, heads head_dim], each fp32 or bf16.
void cpu_attention_delta(std::int64_t head_dim, ConstTensorView out, ConstTensorView dout, TensorView delta);

/// Joins a partial result over other keys into (out, lse), all fp32: out [T, heads head_dim], lse [T, heads]. Where a
/// side's log-sum-exp is -infinity the other side is taken unchanged.
void cpu_attention_merge(std::int64_t head_dim, ConstTensorView partial_out, ConstTensorView partial_lse,
                         TensorView out, TensorView lse);

/// Bytes of scratch memory that forward and backward together hold per OpenMP thread.
std::int64_t cpu_attention_scratch_bytes(const AttentionShape& shape);

}  // namespace skrull
