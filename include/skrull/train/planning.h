#pragma once
// Plans without a run: for any number of ranks on any hardware, from a config and lengths.

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "skrull/config/train_config.h"
#include "skrull/data/length_file.h"
#include "skrull/model/qwen2_config.h"
#include "skrull/schedule/bound.h"
#include "skrull/schedule/memory_model.h"
#include "skrull/schedule/plan_io.h"
#include "skrull/schedule/scheduler.h"

namespace skrull {

/// What a plan is made for and by.
struct PlanningSetup {
  Qwen2Config model;
  Topology topology;
  std::shared_ptr<const CostModel> cost;
  SearchOptions search;
  int zero_stage = 0;  ///< as it is in effect on these ranks
  std::shared_ptr<const MemoryModel> memory;
  /// Of one rank: the profile's, else its share of this machine's, less what the optimizer takes of it.
  std::int64_t device_memory_bytes = 0;
  std::int64_t bucket_tokens = 0;
  bool automatic_bucket = false;       ///< bucket_tokens comes from the memory model
  std::int64_t global_batch_size = 0;  ///< sequences
};

/// `ranks`: 0 means one replica, context_parallel_size ranks. Reads config.json of the model folder, nothing
/// else of it. Throws InvalidInput when the ranks are no multiple of context_parallel_size, and for bucket_tokens
/// "auto" when not even the training state fits the device.
PlanningSetup set_up_planning(const TrainConfig& config, int ranks);

/// Memory of one rank in one way to lay a run out.
struct MemoryLayout {
  int zero_stage = 0;
  Recompute recompute = Recompute::selective;
  std::vector<MemoryCategory> categories;
  std::int64_t total_bytes = 0;  ///< of the device
  std::int64_t host_bytes = 0;   ///< of the host's memory, for an optimizer that lies there
  std::int64_t most_tokens = 0;  ///< of a micro-batch on one rank that fit the device; 0: not even the training state
};

/// What a run would take, without allocating: every ZeRO stage with every recompute mode.
struct MemoryForecast {
  Topology topology;
  std::int64_t tokens = 0;  ///< that a rank holds in a micro-batch
  std::int64_t device_memory_bytes = 0;
  std::vector<MemoryLayout> layouts;
};

/// For micro-batches of bucket_tokens; where these are "auto", of a sequence of cutoff_len over all context-parallel
/// ranks. `ranks` as for set_up_planning().
MemoryForecast forecast_memory(const TrainConfig& config, int ranks);

/// `count` global batches from batch `first` on, of a file of lengths. Throws InvalidInput when there are fewer.
std::vector<LengthBatch> batches_of_file(const std::filesystem::path& file, const PlanningSetup& setup,
                                         std::int64_t first, std::int64_t count);

/// The same of the config's dataset: the batches of these training steps.
std::vector<LengthBatch> batches_of_dataset(const TrainConfig& config, const PlanningSetup& setup, std::int64_t first,
                                            std::int64_t count);

/// The same drawn like the lengths of a known data set (find_length_distribution), by the config's seed, clamped at
/// cutoff_len and at what the ring of all CP ranks can hold.
std::vector<LengthBatch> drawn_batches(const std::string& distribution, const TrainConfig& config,
                                       const PlanningSetup& setup, std::int64_t first, std::int64_t count);

/// Throws InvalidInput for a sequence that no ring of the setup can hold (names its origin, the least bucket_tokens and
/// the least context_parallel_size that would do) and for fewer sequences than replicas.
void check_batch(const LengthBatch& batch, const PlanningSetup& setup);

/// A plan with what the models say of it.
struct JudgedPlan {
  PlanFile file;
  PlanCost cost;
  LowerBound bound;
  std::vector<std::vector<std::int64_t>> peak_tokens;  ///< [replica][rank], over the micro-batches

  std::int64_t peak_bytes(const MemoryModel& memory) const { return memory.bytes(cost.peak_tokens); }
};

/// Plans a batch by `policy`.
JudgedPlan plan_batch(const LengthBatch& batch, const std::string& policy, const PlanningSetup& setup);

/// Judges a plan that is there: file.predicted_step_seconds and bound_seconds become what this cost model says.
JudgedPlan judge_plan(PlanFile file, const CostModel& cost);

}  // namespace skrull
