#pragma once
// output_dir: what may be written where, complete or not at all.

#include <cstdint>
#include <filesystem>
#include <functional>
#include <utility>

#include "skrull/config/train_config.h"

namespace skrull {

/// The files and folders of one run.
class RunFolder {
 public:
  explicit RunFolder(std::filesystem::path output_dir) : path_(std::move(output_dir)) {}

  /// Before a long start-up: throws InvalidInput when the folder holds anything but a token cache and
  /// overwrite_output_dir is false, when it can't be made or written, or when something that the run reads is what it
  /// would overwrite: the folder itself, or an earlier run's checkpoint or file in it. Changes nothing but making the
  /// folder.
  void check(const TrainConfig& config) const;
  /// When the start-up has succeeded: removes what an earlier run left there (metrics, log, checkpoints; its final
  /// model stays until save_final(), files that no run makes stay) and writes args.json, the resolved config.
  void begin(const TrainConfig& config) const;

  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path metrics_file() const { return path_ / "metrics.jsonl"; }
  std::filesystem::path trace_file() const { return path_ / "trace.json"; }
  std::filesystem::path log_file() const { return path_ / "run.log"; }
  /// Token caches: $SKRULL_CACHE when set, else output_dir/cache, else (no output_dir, as for eval) the user's folder
  /// among the system's temporary files.
  std::filesystem::path cache_folder() const;
  std::filesystem::path checkpoint_folder(std::int64_t step) const;

  /// Calls `write` on a temporary folder and renames it to checkpoint-<step> when it returns. When it throws, the
  /// temporary folder is removed and every older checkpoint stays. Then removes the oldest checkpoints beyond
  /// `total_limit` (0 = keep all).
  void save_checkpoint(std::int64_t step, std::int64_t total_limit,
                       const std::function<void(const std::filesystem::path&)>& write) const;

  /// Calls `write` on a temporary folder beside the final files. When it returns, its files replace those of an earlier
  /// model in output_dir; when it throws, the temporary folder is removed and an earlier model stays as it was.
  void save_final(const std::function<void(const std::filesystem::path&)>& write) const;

 private:
  std::filesystem::path path_;
};

}  // namespace skrull
