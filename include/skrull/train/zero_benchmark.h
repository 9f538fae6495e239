#pragma once
// What sharding the training state costs and saves: a step with a ZeRO stage beside the same step without, in turns in
// one run, and AdamW beside the machine's memory bandwidth.

#include <cstdint>
#include <string>

#include "skrull/comm/mpi_session.h"
#include "skrull/core/dtype.h"
#include "skrull/model/qwen2_config.h"
#include "skrull/schedule/recompute.h"

namespace skrull {

struct ZeroBenchmarkOptions {
  DType compute_dtype = DType::float32;
  std::int64_t tokens = 2048;  ///< of every rank's micro-batch
  std::int64_t steps = 5;      ///< measured, after one to warm up
  Recompute recompute = Recompute::selective;
  int zero_stage = 3;
  bool alone = false;  ///< without stage 0 beside it: for the memory that a run takes
};

/// Times are of the slowest rank, memory of the rank that takes most.
struct ZeroBenchmark {
  std::string device;
  int ranks = 1;
  double step_seconds = 0;             ///< median
  double replicated_step_seconds = 0;  ///< with stage 0; 0 when alone
  double ratio = 0;                    ///< of the two, the median of the turns
  double processor_ratio = 0;      ///< the same of processor time, all ranks together: on a CPU that others use, what
                                   ///< the stage costs when nothing of it is hidden
  std::int64_t planned_bytes = 0;  ///< of one stage alone, by the memory model
  std::int64_t peak_bytes = 0;     ///< of the rank that took most of its device, see Device::peak_bytes()
  double adamw_bytes_per_second = 0;   ///< of one rank, all ranks at once: what the update reads and writes
  double memory_bytes_per_second = 0;  ///< of a pass that adds one array to another, likewise
  double adamw_over_memory = 0;        ///< the median of the turns
};

/// Random weights and tokens on all ranks. Collective; the same result on every rank.
ZeroBenchmark bench_zero(const Qwen2Config& model, const ZeroBenchmarkOptions& options, const MpiSession& session);

/// A model of 100 million parameters: 12 layers of 768, a vocabulary of 32000, tied.
Qwen2Config hundred_million();

}  // namespace skrull
