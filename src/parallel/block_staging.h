#pragma once
// Host access to blocks that do not lie whole in memory which the host can address.

#include <functional>
#include <vector>

#include "skrull/comm/even_split.h"
#include "skrull/device/device.h"

namespace skrull {

/// Holds one block on the host at a time. The device must outlive this.
class BlockStaging {
 public:
  enum class Access { read, write };
  /// What the device holds of a block.
  struct Held {
    TensorView values;          ///< 1 x part.count, device memory that must outlive this
    Part part;                  ///< of the block
    std::int64_t elements = 0;  ///< of the block
  };
  /// Where the host can have a whole block: at least its elements.
  using HostMemory = std::function<TensorView(int block)>;
  /// Without `host_memory` it takes its own, for the largest block.
  BlockStaging(Device& device, std::vector<Held> blocks, Access access, HostMemory host_memory = {});

  /// The block in host memory, until the next call; outside the held part its values are those of some earlier block.
  /// What was written to the held part of the block before goes to the device.
  TensorView block(int index);
  /// Writes the last block back.
  void finish();

 private:
  char* host_block(int index);
  char* held_part(int index);

  Device& device_;
  std::vector<Held> blocks_;
  Access access_;
  HostMemory host_memory_;
  std::vector<char> own_memory_;
  int current_ = -1;
};

}  // namespace skrull
