#pragma once
// Saving checkpoints, by all ranks together.

#include <cstdint>
#include <string>
#include <vector>

#include "skrull/config/train_config.h"
#include "skrull/train/checkpoint.h"
#include "skrull/train/model_state.h"
#include "skrull/train/rank_session.h"
#include "skrull/train/run_folder.h"
#include "skrull/train/trainer_state.h"

namespace skrull {

class CheckpointSaver {
 public:
  enum class Content { everything, model_alone };

  /// All must outlive this. `end_of_turn` matters on rank 0.
  CheckpointSaver(const TrainConfig& config, const RunFolder& folder, ModelState& model, EndOfTurn end_of_turn,
                  RankSession& rank);

  /// Makes checkpoint-<step> appear, complete and flushed, or not at all; then removes the oldest ones beyond
  /// save_total_limit. Collective. When any rank fails, all throw its reason, and what was there before is unchanged.
  void save(const TrainerState& state, Content content);

 private:
  void begin(std::int64_t step, Content content, const ModelWeights& weights);
  void write(const TrainerState& state, Content content, const ModelWeights& weights);
  void complete(const TrainerState& state, Content content, const ModelWeights& weights,
                const std::vector<std::string>& records_of_ranks);
  std::int64_t bytes_to_write(Content content, const ModelWeights& weights) const;

  const TrainConfig& config_;
  const RunFolder& folder_;
  ModelState& model_;
  EndOfTurn end_of_turn_;
  RankSession& rank_;
};

}  // namespace skrull
