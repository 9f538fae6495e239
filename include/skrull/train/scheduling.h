#pragma once
// How a run's config and machine become what the scheduler plans by.

#include <memory>

#include "skrull/config/train_config.h"
#include "skrull/model/qwen2_config.h"
#include "skrull/schedule/memory_model.h"
#include "skrull/schedule/scheduler.h"

namespace skrull {

/// Throws InvalidInput when the config asks for what only `skrull plan` can do: policy `sorted`.
void check_trainable_schedule(const TrainConfig& config);

/// What the trainer computes again under this config.
Recompute recompute_of(const TrainConfig& config);

/// What a rank's memory depends on when this model is trained so on ranks of this topology.
MemoryOptions memory_options(const TrainConfig& config, const Qwen2Config& model, const Topology& topology);

/// The profile that the config names; without one, that of the device. Throws InvalidInput when there is none of that
/// name, or the file is wrong.
HardwareProfile choose_hardware_profile(const TrainConfig& config);

/// The limits of the search that the config sets.
SearchOptions search_options(const TrainConfig& config);

/// The cost model of this model on the config's hardware.
std::shared_ptr<const CostModel> make_cost_model(const TrainConfig& config, const Qwen2Config& model);

}  // namespace skrull
