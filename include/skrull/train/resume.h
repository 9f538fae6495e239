#pragma once
// From where a run continues, and whether it may.

#include <cstddef>
#include <filesystem>
#include <functional>
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

/// A complete checkpoint to continue from.
struct ResumePoint {
  std::filesystem::path folder;
  Manifest manifest;
  TrainerState state;
  bool in_output_dir = false;  ///< of this run, which is continued in place; else a new run begins
};

/// What resume_from_checkpoint leads to; all empty: start anew.
struct Resume {
  std::optional<ResumePoint> point;
  std::optional<TrainerState> finished;  ///< a run in output_dir that came to its end
};

/// Looks for a checkpoint to continue from, the newest first. Damaged ones are named in a warning and passed over. What
/// makes a checkpoint valid is found in two passes: next() reads its manifest and its small files and compares the
/// sizes of the large ones; who loads their content checks it meanwhile, and tells by accept(). Calls are collective,
/// and give the same on every rank.
class ResumeSearch {
 public:
  /// All must outlive this.
  ResumeSearch(const TrainConfig& config, const RunFolder& folder, ControlChannel& control, StopRequest& stop);

  /// The next one, older than the one before. Throws InvalidInput on all ranks when nothing valid is left and a path
  /// was given, or when there are only checkpoints that hold the model alone.
  Resume next();
  /// Runs `load` (which uses no collectives) on every rank; what it throws as InvalidInput, on any of them, is why the
  /// checkpoint that next() found last is damaged: false then. Other errors end all ranks.
  bool accept(const std::function<void()>& load);
  /// For `load` to call often: throws Stopped when this rank is asked to stop.
  void leave_if_asked() const;

 private:
  std::string problem_of(const std::string& candidate, Resume& resume);
  void reject(const std::string& problem);
  void require_none_wanted(const Resume& resume);

  const TrainConfig& config_;
  const RunFolder& folder_;
  ControlChannel& control_;
  StopRequest& stop_;
  std::optional<TrainerState> finished_;
  std::vector<std::string> candidates_;
  std::size_t next_ = 0;
  std::string first_problem_;
  bool model_alone_ = false;
};

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
