#pragma once
// What a GPU could compute at the most.

#include "device/cuda_machine.h"
#include "skrull/core/dtype.h"

namespace skrull {

/// FLOP/s of dense products as in NVIDIA's data sheets: bfloat16 on tensor cores with fp32 sums; float32 without them.
/// GPUs whose data sheet names no clock are taken at their highest.
double nominal_peak_flops(const CudaGpu& gpu, DType dtype);

}  // namespace skrull
