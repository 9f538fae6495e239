#pragma once
// Where the optimizer's states lie and its updates run: on the device, or on the host behind the device's work.

#include <memory>

#include "skrull/device/device.h"
#include "skrull/parallel/trainable_parameters.h"
#include "state_memory.h"

namespace skrull {

/// AdamW over the parts of StateMemory. In a step: gradient_summed() of every block, begin_update(), update() of every
/// block in order.
class Optimizer {
 public:
  virtual ~Optimizer() = default;

  /// The sum of the part's gradients is complete once the communication stream has passed what was queued.
  virtual void gradient_summed(int block, ConstTensorView sum) = 0;
  /// `step`: from 1, of the bias correction.
  virtual void begin_update(const AdamWSettings& settings, double gradient_scale, std::int64_t step) = 0;
  /// Master, moments, and what is computed with.
  virtual void update(int block, ConstTensorView gradient) = 0;
  /// The caller wrote new master values: what is computed with follows.
  virtual void masters_written() = 0;

  /// After this event StateMemory::compute() of the block holds what the last update made. Queues the way there, if
  /// need be, on the communication stream.
  virtual Event written(int block) = 0;
  /// Whether blocks are on their way for long, so that they should be asked for one by one, shortly before their use.
  virtual bool writes_late() const = 0;
  /// Until no update is running: the host may use the states.
  virtual void synchronize() = 0;
};

/// By StateMemory::on_host(). `table`, `memory` and `device` must outlive the result.
std::unique_ptr<Optimizer> make_optimizer(const ParameterTable& table, const StateMemory& memory, Device& device);

}  // namespace skrull
