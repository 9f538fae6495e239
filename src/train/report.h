#pragma once
// The start-up report.

#include <cstdint>
#include <filesystem>

#include "skrull/config/train_config.h"
#include "skrull/device/device.h"
#include "skrull/model/qwen2_config.h"
#include "skrull/schedule/memory_model.h"

namespace skrull {

/// Size and shape of the model, where its weights come from, how it is computed.
void report_model(const Qwen2Config& model, const TrainConfig& config);

/// A warning when the model, of `model_bytes`, will not fit on `folder`'s disk: at the end of a long run it would be
/// too late.
void report_disk_space(const std::filesystem::path& folder, std::int64_t model_bytes);

/// The planned memory of this rank, category by category, and what a rank would take in each ZeRO stage with
/// micro-batches of `tokens`.
void report_memory(const Device& device, const Qwen2Config& model, MemoryOptions options, std::int64_t tokens);

}  // namespace skrull
