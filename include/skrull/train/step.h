#pragma once
// One optimizer step: micro-batches, summed gradients, clipping, update.

#include <functional>
#include <vector>

#include "skrull/comm/communicator.h"
#include "skrull/config/train_config.h"
#include "skrull/data/loader.h"
#include "skrull/device/device.h"
#include "skrull/model/transformer.h"
#include "skrull/parallel/micro_batch_attention.h"
#include "skrull/parallel/trainable_parameters.h"

namespace skrull {

/// Where this rank's time went, in seconds on its device's clock.
struct StepTimes {
  double step = 0;           ///< from the first kernel to the last
  double compute = 0;        ///< in micro-batches, without waiting
  double communication = 0;  ///< of rings and gradients, waiting for peers included
  double exposed = 0;        ///< of which the compute stream waited for
};

struct StepOutcome {
  double loss = 0;       ///< of the global batch, summed over all ranks
  double grad_norm = 0;  ///< after the reduction, before clipping
  bool updated = false;  ///< false: loss or norm was not finite, or stopped; parameters and moments are unchanged
  bool stopped = false;  ///< abandoned in the middle
  StepTimes times;
  std::vector<TimelineSpan> spans;  ///< as the timeline's detail says; the times need communication and waits
};

/// Factor on the gradients: min(1, max_norm / (norm + 1e-6)), as torch.nn.utils.clip_grad_norm_; 1 when max_norm is 0
/// (off).
double clip_coefficient(double norm, double max_norm);

/// Forward, backward and update of one global batch at this learning rate. Collective: every rank calls it with its own
/// share of the same batch. Spans that the device's timeline held before are dropped. `stop_agreed`, where given, is
/// asked on all ranks between micro-batches: from where it says true the rest of them are empty.
StepOutcome run_step(const StepBatches& batches, const TrainConfig& config, double learning_rate, Transformer& model,
                     TrainableParameters& parameters, MicroBatchAttention& attention, Device& device,
                     ControlChannel& control, const std::function<bool()>& stop_agreed = {});

}  // namespace skrull
