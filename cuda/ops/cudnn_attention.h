#pragma once
// Attention by cuDNN: whole causal sequences in bf16, forward. Its gradients are not taken: it writes them in bf16
// where Ops promises to add to fp32, and on Hopper their sums have no fixed order.

#include <memory>
#include <string>

#include "ops/attention_engine.h"
#include "ops/cuda_ops.h"

namespace skrull {

/// Why this program has no cuDNN to use on this machine, for people; empty when it has.
std::string cudnn_problem();

/// For the current GPU. `scratch`, which plans work in, must outlive it. Throws RunFailure where cudnn_problem() is not
/// empty and where cuDNN can't start.
std::unique_ptr<AttentionEngine> make_cudnn_attention(CudaScratch& scratch, int compute_capability);

}  // namespace skrull
