#pragma once
// Loss over a data set: sums over all ranks and batches, divided once.

#include <cstdint>
#include <functional>
#include <optional>

#include "skrull/comm/communicator.h"
#include "skrull/data/loader.h"
#include "skrull/model/transformer.h"
#include "skrull/parallel/micro_batch_attention.h"
#include "skrull/train/datasets.h"
#include "skrull/train/trainer.h"

namespace skrull {

/// Every sample of `dataset` once, dealt over the ranks as `options` (those of training) say. Collective; the same
/// result on every rank. `stop_agreed`, where given, is asked on all ranks before every micro-batch: nothing when it
/// says true.
std::optional<EvalResult> evaluate_dataset(const Dataset& dataset, const LoaderOptions& options, Transformer& model,
                                           ParameterProvider& parameters, MicroBatchAttention& attention,
                                           ControlChannel& control, const std::function<bool()>& stop_agreed = {});

}  // namespace skrull
