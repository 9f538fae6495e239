#pragma once
// `skrull profile`: measures a device with the trainer's own model and operations, in the terms of the cost model.

#include <cstdint>
#include <string>
#include <vector>

#include "skrull/core/dtype.h"
#include "skrull/device/device.h"
#include "skrull/model/qwen2_config.h"
#include "skrull/schedule/hardware_profile.h"

namespace skrull {

struct ProfilerOptions {
  DType compute_dtype = DType::float32;
  double seconds = 40;  ///< for the measurements; decides the largest number of tokens, and how often each is repeated
};

struct ProfilerResult {
  HardwareProfile profile;           ///< without a name
  std::vector<std::int64_t> tokens;  ///< at which it was measured
  std::int64_t rounds = 0;           ///< in which everything was measured once; values are lower quartiles over them
  double seconds = 0;                ///< that it all took
};

/// Forward and backward of a few layers of `model` and its head, with random weights, on one rank: micro-batches of
/// 1 to 8192 tokens as far as time and memory allow. Every number of the profile has its source. Links are assumed:
/// see measure_links().
ProfilerResult measure_hardware_profile(const Qwen2Config& model, const ProfilerOptions& options, Device& device);

}  // namespace skrull
