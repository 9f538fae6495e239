#include "block_staging.h"

#include <algorithm>
#include <utility>

namespace skrull {

BlockStaging::BlockStaging(Device& device, std::vector<TensorView> blocks, Access access)
    : device_(device), blocks_(std::move(blocks)), access_(access) {
  std::int64_t largest = 0;
  for (const TensorView& block : blocks_) largest = std::max(largest, block.elements() * size_of(block.dtype()));
  host_.resize(static_cast<std::size_t>(largest));
}

TensorView BlockStaging::block(int index) {
  const TensorView wanted = blocks_.at(static_cast<std::size_t>(index));
  if (index != current_) {
    finish();
    device_.copy_to_host(device_.compute_stream(), host_.data(), wanted);
    device_.compute_stream().synchronize();
    current_ = index;
  }
  return {host_.data(), wanted.dtype(), wanted.rows(), wanted.cols()};
}

void BlockStaging::finish() {
  if (current_ >= 0 && access_ == Access::write) {
    device_.copy_to_device(device_.compute_stream(), blocks_[static_cast<std::size_t>(current_)], host_.data());
    device_.compute_stream().synchronize();
  }
  current_ = -1;
}

}  // namespace skrull
