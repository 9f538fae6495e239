#pragma once
// Where the model gets its parameters from: blocks that lie whole on every rank, or that are gathered while they are in
// use.

#include <cstdint>
#include <memory>

#include "optimizer.h"
#include "skrull/comm/communicator.h"
#include "skrull/device/device.h"
#include "state_memory.h"

namespace skrull {

class ParameterSource {
 public:
  virtual ~ParameterSource() = default;
  /// As ParameterProvider.
  virtual ConstTensorView acquire(int block) = 0;
  virtual void release(int block) = 0;

  virtual void begin_step(std::int64_t micro_batches) = 0;
  /// The optimizer makes new values of the part of `block`. Collective, as is updated_all(), after the last one.
  virtual void updated(int block) = 0;
  virtual void updated_all() = 0;
  /// The optimizer has new values of all parts. Not collective: what has to travel does so when it is
  /// acquired.
  virtual void replaced_all() = 0;
};

/// `memory`, `optimizer`, `device` and `communicator` must outlive the result.
std::unique_ptr<ParameterSource> make_parameter_source(const ParameterTable& table, const Sharding& sharding,
                                                       const StateMemory& memory, Optimizer& optimizer, Device& device,
                                                       Communicator& communicator);

}  // namespace skrull
