#include "block_staging.h"

#include <algorithm>
#include <utility>

namespace skrull {

BlockStaging::BlockStaging(Device& device, std::vector<Held> blocks, Access access, HostMemory host_memory)
    : device_(device), blocks_(std::move(blocks)), access_(access), host_memory_(std::move(host_memory)) {
  if (host_memory_) return;
  std::int64_t largest = 0;
  for (const Held& block : blocks_) largest = std::max(largest, block.elements * size_of(block.values.dtype()));
  own_memory_.resize(static_cast<std::size_t>(largest));
}

char* BlockStaging::host_block(int index) {
  return host_memory_ ? static_cast<char*>(host_memory_(index).data()) : own_memory_.data();
}

char* BlockStaging::held_part(int index) {
  const Held& block = blocks_[static_cast<std::size_t>(index)];
  return host_block(index) + block.part.begin * size_of(block.values.dtype());
}

TensorView BlockStaging::block(int index) {
  const Held& wanted = blocks_.at(static_cast<std::size_t>(index));
  if (index != current_) {
    finish();
    device_.copy_to_host(device_.compute_stream(), held_part(index), wanted.values);
    device_.compute_stream().synchronize();
    current_ = index;
  }
  return {host_block(index), wanted.values.dtype(), 1, wanted.elements};
}

void BlockStaging::finish() {
  if (current_ >= 0 && access_ == Access::write) {
    device_.copy_to_device(device_.compute_stream(), blocks_[static_cast<std::size_t>(current_)].values,
                           held_part(current_));
    device_.compute_stream().synchronize();
  }
  current_ = -1;
}

}  // namespace skrull
