#include "block_staging.h"

#include <algorithm>
#include <utility>

namespace skrull {

BlockStaging::BlockStaging(Device& device, std::vector<Held> blocks, Access access)
    : device_(device), blocks_(std::move(blocks)), access_(access) {
  std::int64_t largest = 0;
  for (const Held& block : blocks_) largest = std::max(largest, block.elements * size_of(block.values.dtype()));
  host_.resize(static_cast<std::size_t>(largest));
}

char* BlockStaging::held_part(const Held& block) {
  return host_.data() + block.part.begin * size_of(block.values.dtype());
}

TensorView BlockStaging::block(int index) {
  const Held& wanted = blocks_.at(static_cast<std::size_t>(index));
  if (index != current_) {
    finish();
    device_.copy_to_host(device_.compute_stream(), held_part(wanted), wanted.values);
    device_.compute_stream().synchronize();
    current_ = index;
  }
  return {host_.data(), wanted.values.dtype(), 1, wanted.elements};
}

void BlockStaging::finish() {
  if (current_ >= 0 && access_ == Access::write) {
    const Held& written = blocks_[static_cast<std::size_t>(current_)];
    device_.copy_to_device(device_.compute_stream(), written.values, held_part(written));
    device_.compute_stream().synchronize();
  }
  current_ = -1;
}

}  // namespace skrull
