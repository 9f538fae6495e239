#pragma once
// The main job: data in, fine-tuned model out.

#include <cstdint>

#include "skrull/comm/mpi_session.h"
#include "skrull/config/train_config.h"

namespace skrull {

/// What a finished run reports as its result (rank 0 prints it as JSON).
struct TrainSummary {
  std::int64_t steps = 0;
  std::int64_t skipped_steps = 0;
  double final_loss = 0;     ///< of the last updated step; NaN when no step was
  double eval_loss = 0;      ///< NaN without evaluation data
  double train_seconds = 0;  ///< of the training loop, evaluation and saving included
  std::int64_t tokens = 0;   ///< of all steps
};

/// Trains by `config` on all ranks of `session` and leaves the model in output_dir. Collective. Throws InvalidInput
/// (config, model or data is wrong; nothing was overwritten) or RunFailure (what happened, at which step; the last
/// complete checkpoint stays).
TrainSummary train(const TrainConfig& config, const MpiSession& session);

struct EvalResult {
  double loss = 0;  ///< mean cross-entropy over supervised tokens
  double perplexity = 0;
  std::int64_t tokens = 0;  ///< supervised tokens
};

/// Loss of the model of `config` on load_evaluation_data(). Collective; writes nothing but the token cache. The
/// same on every rank.
EvalResult evaluate(const TrainConfig& config, const MpiSession& session);

}  // namespace skrull
