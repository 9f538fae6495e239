#pragma once
// The start-up report.

#include "skrull/config/train_config.h"
#include "skrull/device/device.h"
#include "skrull/model/qwen2_config.h"

namespace skrull {

/// Size and shape of the model, where its weights come from, how it is computed.
void report_model(const Qwen2Config& model, const TrainConfig& config);

/// The planned memory of this rank, category by category.
void report_memory(const Device& device);

}  // namespace skrull
