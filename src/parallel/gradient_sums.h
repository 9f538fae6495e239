#pragma once
// Where gradients are added up over micro-batches and ranks.
//
// All stages form the same sums in the same order, so that they train to the same bits. For a block's part that rank r
// owns, in each micro-batch: r's own contribution is added on top of r's sum so far, the other ranks' contributions
// begin from zero, and then all are added in ascending rank order. Nothing else has to be kept between micro-batches
// than the owned sums, and no stage needs a buffer for this that it does not have.

#include <memory>
#include <vector>

#include "skrull/comm/communicator.h"
#include "skrull/device/device.h"
#include "state_memory.h"

namespace skrull {

class GradientSums {
 public:
  virtual ~GradientSums() = default;
  /// The block is used for the first time in a micro-batch; `first` of the step.
  virtual void open(int block, bool first) = 0;
  /// Between open() and ready(): the whole block, fp32.
  virtual TensorView accumulator(int block) = 0;
  /// This micro-batch adds no more to the block; `last` of the step. Collective.
  virtual void ready(int block, bool last) = 0;
  /// The sums of the part (StateMemory), once the compute stream has passed what was queued.
  virtual ConstTensorView sum(int block) const = 0;
  /// Memory for a whole block, fp32, between steps; what it held is lost. Sums may be.
  virtual TensorView spare(int block) = 0;
};

/// `memory`, `device` and `communicator` must outlive the result.
std::unique_ptr<GradientSums> make_gradient_sums(const ParameterTable& table, const Sharding& sharding,
                                                 GradientReduction reduction, const StateMemory& memory, Device& device,
                                                 Communicator& communicator);

}  // namespace skrull
