#pragma once
// The model's parameters while they are trained: what the model reads, where its gradients go, and the optimizer, over
// all ranks. How much of it a rank holds is the implementation's affair.

#include <cstdint>
#include <functional>
#include <memory>

#include "skrull/comm/communicator.h"
#include "skrull/comm/even_split.h"
#include "skrull/device/device.h"
#include "skrull/model/model_io.h"
#include "skrull/model/parameter_table.h"
#include "skrull/model/seams.h"

namespace skrull {

/// AdamW as Ops describes it. Biases and norm weights do not decay (ParameterSpec::weight_decay).
struct AdamWSettings {
  double learning_rate = 0;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  double weight_decay = 0;
};

/// What this rank owns of a block: 1 x part.count views of device memory. The ranks' parts cover the block once.
struct OwnedState {
  Part part;             ///< elements of the block's flat buffer
  TensorView parameter;  ///< fp32 master
  ConstTensorView gradient;
  TensorView first_moment;
  TensorView second_moment;
};

/// One training step, the same calls on every rank:
///
///     begin_step(micro_batches);
///     for each micro-batch: the model acquires and releases blocks, adds to accumulators, and readies every block once
///     finish_gradients();
///     norm = gradient_norm();
///     update(settings, clip coefficient);   // or not: a step without it changes nothing
///
/// All memory is allocated when made. Calls out of this order throw RunFailure.
class TrainableParameters : public ParameterProvider, public GradientSink {
 public:
  virtual const ParameterTable& table() const = 0;

  /// Gradients start from zero and are summed over `micro_batches` >= 1 and over all ranks.
  virtual void begin_step(std::int64_t micro_batches) = 0;
  /// Queues what is left to do, and makes the compute stream wait until the sums are complete.
  virtual void finish_gradients() = 0;
  /// Root of the sum of squares over every element of the summed gradients, each counted once; the same bits on every
  /// rank. Not finite when any element is not. Host-synchronous, collective.
  virtual double gradient_norm() = 0;
  /// AdamW with gradient_scale x gradient.
  virtual void update(const AdamWSettings& settings, double gradient_scale) = 0;

  /// Updates made so far: the step of Adam's bias correction.
  virtual std::int64_t updates() const = 0;
  /// Continues a run after every rank wrote the parameter and moments of its own parts through owned(): spreads them to
  /// whoever needs them. Collective.
  virtual void restore(std::int64_t updates) = 0;

  /// Calls `fill` on every rank, to write the master values of every block; it must write the same values everywhere. A
  /// block's view is valid until the next block is asked for.
  virtual void set_values(const std::function<void(const BlockOnHost&)>& fill) = 0;
  /// Collective: calls `use` on rank 0, to read the master values block by block, likewise. What it throws, rank 0
  /// throws.
  virtual void get_values(const std::function<void(const BlockOnHost&)>& use) = 0;
  /// For checkpoints and tests. Gradients are the sums after finish_gradients(). Between steps.
  virtual OwnedState owned(int block) = 0;
};

struct TrainableParametersOptions {
  DType compute_dtype = DType::float32;  ///< what acquire() gives: float32 or bfloat16
  bool training = true;                  ///< false: parameters only, for evaluation
};

/// Bytes per rank by category of the memory table: "parameters", "gradients", "optimizer state".
struct ParameterStateBytes {
  std::int64_t parameters = 0;
  std::int64_t gradients = 0;
  std::int64_t optimizer_state = 0;
};

/// Every rank holds everything (ZeRO stage 0). During the last micro-batch of a step each block's gradient is summed
/// over the ranks behind the backward, as soon as it is ready. `communicator` spans all ranks that train together, over
/// the memory of `device`; both must outlive this, and `table` is copied.
std::unique_ptr<TrainableParameters> make_replicated_parameters(const ParameterTable& table,
                                                                const TrainableParametersOptions& options,
                                                                Device& device, Communicator& communicator);
/// What make_replicated_parameters() allocates.
ParameterStateBytes replicated_state_bytes(const ParameterTable& table, const TrainableParametersOptions& options);

}  // namespace skrull
