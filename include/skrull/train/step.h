#pragma once
// One optimizer step: micro-batches, summed gradients, clipping, update.

#include <functional>

#include "skrull/comm/communicator.h"
#include "skrull/config/train_config.h"
#include "skrull/data/loader.h"
#include "skrull/model/transformer.h"
#include "skrull/parallel/micro_batch_attention.h"
#include "skrull/parallel/trainable_parameters.h"

namespace skrull {

struct StepOutcome {
  double loss = 0;       ///< of the global batch, summed over all ranks
  double grad_norm = 0;  ///< after the reduction, before clipping
  bool updated = false;  ///< false: loss or norm was not finite, or stopped; parameters and moments are unchanged
  bool stopped = false;  ///< abandoned in the middle
};

/// Factor on the gradients: min(1, max_norm / (norm + 1e-6)), as torch.nn.utils.clip_grad_norm_; 1 when max_norm is 0
/// (off).
double clip_coefficient(double norm, double max_norm);

/// Forward, backward and update of one global batch at this learning rate. Collective: every rank calls it with its own
/// share of the same batch. `stop_agreed`, where given, is asked on all ranks between micro-batches: from where it says
/// true the rest of them are empty.
StepOutcome run_step(const StepBatches& batches, const TrainConfig& config, double learning_rate, Transformer& model,
                     TrainableParameters& parameters, MicroBatchAttention& attention, ControlChannel& control,
                     const std::function<bool()>& stop_agreed = {});

}  // namespace skrull
