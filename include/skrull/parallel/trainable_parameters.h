#pragma once
// The model's parameters while they are trained: what the model reads, where its gradients go, and the optimizer, over
// all ranks. How much of it a rank holds is the implementation's affair.

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>

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

/// What this rank owns of a block: 1 x part.count views of device memory, or of host memory for what
/// TrainableParametersOptions::optimizer_on_host keeps there; Device::copy_to_host() and copy_to_device() take either.
/// The ranks' parts cover the block once, the same way in every ZeRO stage.
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
  /// block's view is valid until the next block is asked for, and holds what was written to it only where this rank
  /// keeps that. Not collective: ranks may fail in it one by one. Gradients may be lost.
  virtual void set_values(const std::function<void(const BlockOnHost&)>& fill) = 0;
  /// Collective: calls `use` on rank 0, to read the master values block by block, likewise; the other ranks help to
  /// gather what it asks for. Ends on every rank, also when `use` throws, which rank 0 alone then throws. Gradients may
  /// be lost.
  virtual void get_values(const std::function<void(const BlockOnHost&)>& use) = 0;
  /// For checkpoints and tests. Gradients are the sums from finish_gradients() on, until get_values(), set_values() or
  /// the next step. Between steps.
  virtual OwnedState owned(int block) = 0;
};

/// When gradients are summed over ranks.
enum class GradientReduction {
  /// Behind the backward of every micro-batch: in all ZeRO stages the same sums, bit for bit.
  every_micro_batch,
  /// Behind the backward of a step's last one: less communication. Stages 0 and 1 only.
  once
};

struct TrainableParametersOptions {
  DType compute_dtype = DType::float32;  ///< what acquire() gives: float32 or bfloat16
  bool training = true;                  ///< false: parameters only, for evaluation
  bool optimizer_on_host = false;        ///< master weights and moments in host memory, updated there
  int zero_stage = 0;                    ///< what is divided among the ranks: see Sharding
  GradientReduction reduction = GradientReduction::every_micro_batch;
};

/// `device` and `communicator` (all ranks) must outlive the result. Throws RunFailure for options out of range.
std::unique_ptr<TrainableParameters> make_trainable_parameters(const ParameterTable& table,
                                                               const TrainableParametersOptions& options,
                                                               Device& device, Communicator& communicator);

/// Bytes that make_trainable_parameters() allocates on rank `rank` of `ranks`, by category of the memory table; what
/// lies in host memory under "optimizer on host". By the same code that allocates.
std::map<std::string, std::int64_t> training_state_bytes(const ParameterTable& table,
                                                         const TrainableParametersOptions& options, int ranks,
                                                         int rank);

}  // namespace skrull
