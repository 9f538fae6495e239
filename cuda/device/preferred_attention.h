#pragma once

#include "device/cuda_machine.h"
#include "ops/attention_engine.h"
#include "ops/cuda_ops.h"
#include "skrull/device/device.h"

namespace skrull {

/// The engine beside the native one that `choice` asks for, checked against it on this GPU, each direction by itself;
/// null where that is none or the check failed, which is warned of. Throws InvalidInput when `choice` asks for one that
/// can't be had. What engines work in, see make_cudnn_attention().
PreferredAttention preferred_attention(const AttentionChoice& choice, const CudaGpu& gpu, Device& device,
                                       CudaScratch& scratch, CudaScratch& backward_scratch);

}  // namespace skrull
