#pragma once
// How fast a whole training step is beside the matrix products it consists of, measured in turns in one run.

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "skrull/config/choices.h"
#include "skrull/core/dtype.h"
#include "skrull/device/bench.h"
#include "skrull/model/qwen2_config.h"
#include "skrull/schedule/hardware_profile.h"
#include "skrull/schedule/recompute.h"

namespace skrull {

struct StepBenchmarkOptions {
  DeviceChoice device = DeviceChoice::cpu;
  AttentionChoice attention;
  DType compute_dtype = DType::float32;
  std::int64_t tokens = 2048;  ///< of the one micro-batch, in sequences of half, a quarter, ... of them
  std::int64_t longest = std::numeric_limits<std::int64_t>::max();  ///< of the sequences
  bool fill_memory = false;  ///< as many tokens as the device has memory for, by the memory model
  std::int64_t steps = 3;    ///< measured, after one to warm up
  int threads = 0;           ///< 0: all
  Recompute recompute = Recompute::selective;
};

struct StepBenchmark {
  std::string device;
  std::int64_t tokens = 0;
  std::vector<std::int64_t> lengths;
  double model_flops = 0;   ///< of one step: forward and backward, see Qwen2Config::training_flops
  double step_seconds = 0;  ///< median; forward, backward, norm, update
  double fastest_step_seconds = 0;
  double update_seconds = 0;            ///< of which norm and update, median
  double step_flops_per_second = 0;     ///< model_flops / step_seconds
  double product_flops_per_second = 0;  ///< the device's matrix products on this model's shapes, median
  double ratio = 0;                     ///< of the two, the median of the turns
  double peak_flops_per_second = 0;     ///< Device::peak_flops

  std::int64_t available_bytes = 0;  ///< of the device's memory, before anything was allocated
  std::int64_t planned_bytes = 0;    ///< the memory table's total
  std::int64_t peak_bytes = 0;       ///< what was taken of the device, see Device::peak_bytes()

  double model_flops_utilization() const { return step_flops_per_second / peak_flops_per_second; }
  double filled_share() const { return static_cast<double>(peak_bytes) / static_cast<double>(available_bytes); }
};

/// Random weights, random tokens, one rank. All memory is planned as in training.
StepBenchmark bench_step(const Qwen2Config& model, const StepBenchmarkOptions& options);

/// What the scheduler's cost model predicts for such a step: one micro-batch of whole sequences on one rank, and the
/// profile's part that no schedule changes.
double predict_step(const ModelShape& model, const std::vector<std::int64_t>& lengths, Recompute recompute,
                    const HardwareProfile& profile);

BenchShape bench_shape(const Qwen2Config& model, std::int64_t tokens);

}  // namespace skrull
