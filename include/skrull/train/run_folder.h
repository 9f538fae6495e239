#pragma once
// output_dir: what may be written where, complete or not at all.

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "skrull/config/train_config.h"

namespace skrull {

inline constexpr const char* metrics_name = "metrics.jsonl";
inline constexpr const char* trace_name = "trace.json";
inline constexpr const char* log_name = "run.log";

/// The files and folders of one run.
class RunFolder {
 public:
  explicit RunFolder(std::filesystem::path output_dir) : path_(std::move(output_dir)) {}

  /// Before a long start-up: throws InvalidInput when the folder holds anything but a token cache and neither
  /// overwrite_output_dir nor resume_from_checkpoint allows that (auto: in a run's folder), when it can't be made or
  /// written, or when something that the run reads is what it would overwrite: the folder itself, or an earlier run's
  /// checkpoint or file in it. Changes nothing but making the folder.
  void check(const TrainConfig& config) const;
  /// When the start-up of a new run has succeeded: removes what an earlier run left there (metrics, log, checkpoints;
  /// its final model stays until save_final(), files that no run makes stay) and writes args.json, the resolved config.
  /// Under resume_from_checkpoint its checkpoints, none of which is of use, are set aside and not removed.
  void begin(const TrainConfig& config) const;
  /// The same when the run continues after `step`: removes what an interrupted save left, sets later checkpoints aside
  /// (checkpoint-<step>.set-aside), cuts metrics.jsonl after the rows of `step` and writes args.json.
  void continue_after(std::int64_t step, const TrainConfig& config) const;

  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path metrics_file() const { return path_ / metrics_name; }
  std::filesystem::path trace_file() const { return path_ / trace_name; }
  std::filesystem::path log_file() const { return path_ / log_name; }
  /// Token caches: $SKRULL_CACHE when set, else output_dir/cache, else (no output_dir, as for eval) the user's folder
  /// among the system's temporary files.
  std::filesystem::path cache_folder() const;

  /// Steps of the folders checkpoint-<step> that are there, complete by their name, ascending.
  std::vector<std::int64_t> checkpoints() const;
  std::filesystem::path checkpoint_folder(std::int64_t step) const;
  /// Where checkpoint-<step> is put together.
  std::filesystem::path temporary_checkpoint(std::int64_t step) const;
  /// Makes it, empty. Throws RunFailure when that fails or the disk has less than `bytes` free.
  void begin_checkpoint(std::int64_t step, std::int64_t bytes) const;
  /// Flushes it and gives it its name in one rename; every file in it was flushed before. Then removes the oldest
  /// checkpoints beyond `total_limit` (0: none), never this one. Throws RunFailure.
  void complete_checkpoint(std::int64_t step, std::int64_t total_limit) const;
  /// Removes it, as far as that goes.
  void discard_checkpoint(std::int64_t step) const;
  /// What people can do after a save that failed.
  std::string advice_after_failed_save() const;

  /// Calls `write` on a temporary folder beside the final files. When it returns, its files replace those of an earlier
  /// model in output_dir; when it throws, the temporary folder is removed and an earlier model stays as it was.
  void save_final(const std::function<void(const std::filesystem::path&)>& write) const;

 private:
  void set_aside_checkpoints_after(std::int64_t step) const;

  std::filesystem::path path_;
};

}  // namespace skrull
