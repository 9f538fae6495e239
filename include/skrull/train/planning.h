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
  std::shared_ptr<const MemoryModel> memory;
  std::int64_t device_memory_bytes = 0;  ///< of one rank: the profile's, else its share of this machine's
  std::int64_t bucket_tokens = 0;
  bool automatic_bucket = false;       ///< bucket_tokens comes from the memory model
  std::int64_t global_batch_size = 0;  ///< sequences
};

/// `ranks`: 0 means one replica, context_parallel_size ranks. `zero_stage` 0 to 3: how the training state is divided,
/// for memory alone. Reads config.json of the model folder, nothing else of it. Throws InvalidInput when the ranks are
/// no multiple of context_parallel_size, and for bucket_tokens "auto" when not even the training state fits the device.
PlanningSetup set_up_planning(const TrainConfig& config, int ranks, int zero_stage);

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
