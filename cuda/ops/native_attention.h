#pragma once
// Attention by this project's own kernels, for all that Ops promises: bf16 heads of 64 and 128 on the tensor cores, all
// else up to heads of 256 by fp32 arithmetic. Meaning and checks of the arguments: skrull/device/ops.h. Deterministic:
// every sum has one order, which depends on its own segment alone.

#include <cuda_runtime_api.h>

#include <cstdint>

#include "skrull/device/ops.h"

namespace skrull::attention {

void native_forward(cudaStream_t stream, const AttentionForward& attention);
void native_backward(cudaStream_t stream, const AttentionBackward& attention);

void merge(cudaStream_t stream, std::int64_t head_dim, ConstTensorView partial_out, ConstTensorView partial_lse,
           TensorView out, TensorView lse);
void delta(cudaStream_t stream, std::int64_t head_dim, ConstTensorView out, ConstTensorView dout, TensorView result);

}  // namespace skrull::attention
