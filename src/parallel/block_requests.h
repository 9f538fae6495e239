#pragma once
// Rank 0 asks for blocks one by one, and all ranks gather what it asks for.

#include <functional>

#include "skrull/comm/communicator.h"
#include "skrull/device/device.h"

namespace skrull {

/// `gather` makes a block whole, with the same collectives on all ranks. Every rank makes one of these; rank 0 calls
/// request() as often as it likes and then finish(), the others call serve().
class BlockRequests {
 public:
  using Gather = std::function<TensorView(int block)>;
  /// Both must outlive this.
  BlockRequests(Device& device, Communicator& communicator, Gather gather);

  TensorView request(int block);
  void finish();
  /// Returns when rank 0 has finished.
  void serve();

 private:
  int broadcast(int block);

  Device& device_;
  Communicator& communicator_;
  Gather gather_;
  Buffer message_;  // one int64
};

}  // namespace skrull
