#pragma once
// One optimizer step: micro-batches, summed gradients, clipping, update.

#include <cstdint>

#include "skrull/comm/communicator.h"
#include "skrull/config/train_config.h"
#include "skrull/data/loader.h"
#include "skrull/model/transformer.h"
#include "skrull/parallel/local_attention.h"
#include "skrull/parallel/trainable_parameters.h"

namespace skrull {

/// What a step needs; all outlive the step.
struct StepContext {
  Transformer& model;
  TrainableParameters& parameters;
  LocalAttention& attention;
  ControlChannel& control;
};

struct StepOutcome {
  double loss = 0;       ///< of the global batch, summed over all ranks
  double grad_norm = 0;  ///< after the reduction, before clipping
  bool updated = false;  ///< false: loss or norm was not finite, or nothing was supervised; parameters and Adam state are unchanged
};

/// Factor on the gradients: min(1, max_norm / (norm + 1e-6)), as torch.nn.utils.clip_grad_norm_; 1 when max_norm is 0 (off).
double clip_coefficient(double norm, double max_norm);

/// Runs `batch` through forward, backward and update with this learning rate. Collective: every rank calls it with its own micro-batches
/// of the same global batch.
StepOutcome run_step(const StepContext& context, const GlobalBatch& batch, const TrainConfig& config, double learning_rate);

}  // namespace skrull
