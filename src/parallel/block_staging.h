#pragma once
// Host access to blocks of device memory that the host cannot address.

#include <vector>

#include "skrull/device/device.h"

namespace skrull {

/// Holds one block on the host at a time. `blocks` are 1 x n views of device memory; they and the device must outlive
/// this.
class BlockStaging {
 public:
  enum class Access { read, write };
  BlockStaging(Device& device, std::vector<TensorView> blocks, Access access);

  /// The block's values in host memory, until the next call. What was written to the block before goes to the device.
  TensorView block(int index);
  /// Writes the last block back.
  void finish();

 private:
  Device& device_;
  std::vector<TensorView> blocks_;
  Access access_;
  std::vector<char> host_;
  int current_ = -1;
};

}  // namespace skrull
