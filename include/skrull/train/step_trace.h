#pragma once
// The timeline of some steps on all ranks as a file for Perfetto.

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "skrull/config/train_config.h"
#include "skrull/data/loader.h"
#include "skrull/device/timeline.h"
#include "skrull/train/rank_session.h"

namespace skrull {

/// Sets what the device's timeline notes: communication and waits in every step, and in those that `trace` asks for
/// every kernel too, which are then written as Chrome trace events (chrome://tracing, ui.perfetto.dev): a process per
/// rank, with a thread for its compute stream and one for its communication stream.
///
/// Times count from the first traced span of all ranks where they share a host and with it a clock, else from each
/// rank's own.
class StepTrace {
 public:
  /// Steps count from 1; `done` of the run's `steps` were done before this start of it. `rank` must outlive this.
  StepTrace(const TrainConfig& config, std::filesystem::path file, std::int64_t done, std::int64_t steps,
            RankSession& rank);

  void begin_step(std::int64_t step);
  /// Collective. Writes the file after the last traced step; that it can't be written is a warning: telemetry never
  /// ends a run.
  void end_step(std::int64_t step, const std::vector<TimelineSpan>& spans, const StepBatches& batches);

 private:
  bool is_traced(std::int64_t step) const { return step >= first_step_ && step < end_step_; }
  void write();

  std::filesystem::path file_;
  std::int64_t first_step_ = 0;
  std::int64_t end_step_ = 0;
  RankSession& rank_;
  bool has_zero_ = false;
  double zero_ = 0;
  std::string events_;  ///< of this rank, joined by commas
};

}  // namespace skrull
