#include "block_walk.h"

#include <algorithm>

namespace skrull {

BlockWalk::BlockWalk(const ParameterTable& table) : final_norm_(table.final_norm_block()) {
  for (int block = 0; block <= final_norm_; ++block) evaluation_.push_back(block);
  evaluation_.push_back(table.head_block());
  training_ = evaluation_;
  for (int block = final_norm_; block > table.embedding_block(); --block) training_.push_back(block);
}

void BlockWalk::begin_step(std::int64_t micro_batches) {
  micro_batches_ = micro_batches;
  rewind();
}

void BlockWalk::rewind() {
  position_ = 0;
  lost_ = false;
}

void BlockWalk::advance(int block) {
  if (lost_ || blocks()[position_] != block) {
    lost_ = block != blocks().front();
    if (lost_) return;
    position_ = 0;
  }
  if (++position_ < blocks().size()) return;
  position_ = 0;
  lost_ = micro_batches_ == 1;
  if (micro_batches_ > 0) --micro_batches_;
}

std::vector<int> BlockWalk::upcoming() const {
  std::vector<int> result;
  if (lost_) return result;
  for (std::size_t i = position_; i < blocks().size(); ++i) {
    const int block = blocks()[i];
    if (std::find(result.begin(), result.end(), block) == result.end()) result.push_back(block);
    if (i != 0 && block != final_norm_) break;
  }
  return result;
}

}  // namespace skrull
