#pragma once

#include <memory>

#include "device/cuda_machine.h"
#include "ops/attention_engine.h"
#include "ops/cuda_ops.h"
#include "skrull/config/choices.h"
#include "skrull/device/device.h"

namespace skrull {

/// The engine beside the native one that `choice` asks for, checked against it on this GPU; null when that is none or
/// the check failed, which is warned of. Throws InvalidInput when `choice` asks for one that can't be had.
std::unique_ptr<AttentionEngine> preferred_attention(AttentionEngineChoice choice, const CudaGpu& gpu, Device& device,
                                                     CudaScratch& scratch);

}  // namespace skrull
