#pragma once
// Attention by cuDNN: whole causal sequences in bf16, forward and backward. Its gradients are sums in fp32 that it
// rounds to bf16 once, before they are added to fp32.

#include <memory>
#include <string>

#include "ops/attention_engine.h"
#include "ops/cuda_ops.h"

namespace skrull {

/// Why this program has no cuDNN to use on this machine, for people; empty when it has.
std::string cudnn_problem();

struct CudnnOptions {
  int compute_capability = 0;  ///< 10 x major + minor, of the current GPU
  bool deterministic = true;   ///< of gradients
};

/// Plans of the forward work in `scratch`, those of the backward in `backward_scratch`: some fp32 gradients of the
/// queries it computes at a time. Both must outlive the engine. Throws RunFailure where cudnn_problem() is not empty
/// and where cuDNN can't start.
std::unique_ptr<AttentionEngine> make_cudnn_attention(CudaScratch& scratch, CudaScratch& backward_scratch,
                                                      const CudnnOptions& options);

}  // namespace skrull
