#pragma once
// From where a run continues, and whether it may.

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "skrull/comm/communicator.h"
#include "skrull/config/train_config.h"
#include "skrull/train/checkpoint.h"
#include "skrull/train/datasets.h"
#include "skrull/train/run_folder.h"
#include "skrull/train/stop_request.h"
#include "skrull/train/trainer_state.h"

namespace skrull {

/// A complete and valid checkpoint to continue from.
struct ResumePoint {
  std::filesystem::path folder;
  TrainerState state;
  bool in_output_dir = false;  ///< of this run, which is continued in place; else a new run begins
};

/// What resume_from_checkpoint leads to; all empty: start anew.
struct Resume {
  std::optional<ResumePoint> point;
  std::optional<TrainerState> finished;  ///< a run in output_dir that came to its end
};

/// A manifest whose files were all read, or what is wrong.
struct CheckedCheckpoint {
  Manifest manifest;
  std::string problem;  ///< names the first damaged file; "" when all are as they were written
};

/// Reads and checks every file of a checkpoint, spread over the ranks. Collective; the same on every rank. A rank that
/// `stop` asks to stop leaves its files at once; then all throw Stopped.
CheckedCheckpoint check_checkpoint(const std::filesystem::path& folder, ControlChannel& control, StopRequest& stop);

/// Damaged checkpoints are named in a warning and passed over for an older one. Collective; the same on every rank.
/// Throws InvalidInput on all ranks when a path was given and nothing valid is there, and when there are only
/// checkpoints that hold the model alone.
/// Stopped when `stop` asks for it.
Resume find_resume(const TrainConfig& config, const RunFolder& folder, ControlChannel& control, StopRequest& stop);

/// Identifies the training samples in their order.
std::string fingerprint_of(const Dataset& dataset);

/// Sequences per step under `config`; those of `saved` when none of the keys that say so was changed, however many
/// ranks there are now.
std::int64_t resumed_global_batch_size(const TrainerState& saved, const TrainConfig& config,
                                       std::int64_t data_parallel);

/// Throws InvalidInput naming `origin`, the key and both values when a run that stood at `saved` can't continue under
/// this config, data or model.
void check_resumable(const TrainerState& saved, const std::string& origin, const TrainConfig& config,
                     std::int64_t global_batch_size, const Dataset& train, const Qwen2Config& model);

/// Lines for people: the options that changed since, other than paths and what a start decides for itself.
std::vector<std::string> describe_changes(const TrainerState& saved, const TrainConfig& config);

}  // namespace skrull
