#pragma once
// Scheduling policies measured: the same batches trained by the plans of each, on an emulated network.

#include <cstdint>
#include <string>
#include <vector>

#include "skrull/comm/mpi_session.h"
#include "skrull/core/dtype.h"
#include "skrull/model/qwen2_config.h"
#include "skrull/schedule/hardware_profile.h"

namespace skrull {

struct PolicyBenchmarkOptions {
  Qwen2Config model;
  DType compute_dtype = DType::bfloat16;
  int context_parallel = 1;  ///< divides the ranks
  std::vector<std::string> policies;
  std::vector<std::vector<std::int64_t>> batches;  ///< lengths
  std::int64_t bucket_tokens = 0;
  /// What the emulated network is to this machine is `cluster`'s to its GPUs: see emulated_link().
  HardwareProfile cluster;
  ModelShape cluster_model;
  double length_scale = 1.0;    ///< of `batches`' lengths to those on the cluster
  double profile_seconds = 10;  ///< to measure the ranks' speed, by which plans are made
  std::int64_t turns = 3;       ///< values are medians over them
};

/// A model on hardware.
struct ModelOnHardware {
  ModelShape model;
  HardwareProfile hardware;
};

/// The link that is to `here` what the cluster's inside a node is to it, for sequences of `length_scale` times the
/// tokens. Where the linear layers of a sequence take x times as long here (in micro-batches of `tokens` tokens here),
/// its keys and values travel x times as long, and the latency is x times as long.
LinkRate emulated_link(const ModelOnHardware& here, const ModelOnHardware& cluster, double length_scale,
                       std::int64_t tokens);

/// One policy over all batches: sums of seconds.
struct MeasuredPolicy {
  std::string policy;
  double measured = 0.0;       ///< forward and backward of all micro-batches; the sum of the gradients, which no
                               ///< schedule changes and which is out of proportion for a small model, is left out
  double predicted = 0.0;      ///< the same by the cost model
  double communication = 0.0;  ///< of rings, mean over ranks
  double exposed = 0.0;        ///< of which computation waited for
  std::int64_t micro_batches = 0;
};

struct PolicyBenchmark {
  int data_parallel = 1;
  int context_parallel = 1;
  HardwareProfile profile;  ///< measured, with the emulated links
  std::vector<MeasuredPolicy> policies;
};

/// Collective over the ranks of `session`, each with one thread on processor time: as if it had a core of its own. The
/// same plans on every rank; the result on rank 0.
PolicyBenchmark bench_policies(const PolicyBenchmarkOptions& options, const MpiSession& session);

}  // namespace skrull
