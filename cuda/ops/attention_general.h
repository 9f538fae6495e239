#pragma once
// Attention for what the tensor core kernels do not take: fp32, and bf16 with other head sizes or rows that are not
// aligned. Head sizes up to 256; all arithmetic in fp32. Operands are checked by the caller.

#include "kernel/kernel.h"
#include "skrull/device/ops.h"

namespace skrull::attention {

void general_forward(cudaStream_t stream, const AttentionForward& attention);
void general_backward(cudaStream_t stream, const AttentionBackward& attention);

}  // namespace skrull::attention
