#pragma once
// metrics.jsonl, one row per optimizer step and per evaluation, and what people see while a run goes on.

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>

namespace skrull {

/// One optimizer step, as all ranks together see it.
struct StepMetrics {
  std::int64_t step = 0;  ///< from 1
  double epoch = 0;       ///< passes over the data when this step is done
  double loss = 0;        ///< the step's loss (see loss_reduction)
  double grad_norm = 0;   ///< after the reduction over ranks, before clipping
  double learning_rate = 0;
  std::int64_t tokens = 0;          ///< of the global batch
  std::int64_t trained_tokens = 0;  ///< supervised ones among them
  std::int64_t local_tokens = 0;    ///< of sequences that lay whole on a rank
  std::int64_t ring_tokens = 0;     ///< of sequences that were sharded over a ring
  double step_seconds = 0;
  double predicted_step_seconds = 0;  ///< by the cost model that the plan was made with
  double schedule_seconds = 0;        ///< that making the plan took, beside the step before
  double schedule_wait_seconds = 0;   ///< by which it delayed the step
  double comm_seconds = 0;            ///< of rings and gradients on the communication stream, mean over ranks
  double comm_exposed_seconds = 0;    ///< of which computation waited for, mean over ranks
  double imbalance = 1;               ///< computing time of the busiest rank over the mean
  double tokens_per_second = 0;
  double trained_tokens_per_second = 0;
  double mfu = 0;                             ///< model FLOP/s over Device::peak_flops() of all ranks
  std::int64_t peak_memory_bytes = 0;         ///< resident in host memory, of the rank that used most
  std::int64_t peak_device_memory_bytes = 0;  ///< likewise of the device, see Device::peak_bytes()
  double eta_seconds = 0;
  std::int64_t skipped_steps = 0;  ///< since the start
  bool skipped = false;            ///< this step did not update the parameters
};

struct EvalMetrics {
  std::int64_t step = 0;  ///< optimizer steps done before
  double epoch = 0;
  double loss = 0;  ///< mean over supervised tokens
  double perplexity = 0;
  std::int64_t tokens = 0;  ///< supervised tokens
  double seconds = 0;
};

/// Appends rows to metrics.jsonl (rank 0 makes one). A full disk is reported once as a warning: telemetry never ends a
/// run.
class MetricsFile {
 public:
  explicit MetricsFile(const std::filesystem::path& file);
  void append(const StepMetrics& metrics);
  void append(const EvalMetrics& metrics);

 private:
  void append_line(const std::string& line);
  std::filesystem::path path_;
  std::ofstream stream_;
  bool failed_ = false;
};

/// "step 12/300 | epoch 0.12 | loss 1.2345 | ..." for a progress line or a log line.
std::string describe(const StepMetrics& metrics, std::int64_t total_steps);
std::string describe(const EvalMetrics& metrics);

}  // namespace skrull
