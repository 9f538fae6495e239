#pragma once
// The order in which the model acquires blocks (ParameterProvider), to know early which comes next.

#include <cstdint>
#include <vector>

#include "skrull/model/parameter_table.h"

namespace skrull {

/// Follows the calls. An order that is not the model's is no error: nothing is foretold until a micro-batch begins
/// again. The same calls on all ranks give the same answers.
class BlockWalk {
 public:
  explicit BlockWalk(const ParameterTable& table);

  /// The next `micro_batches` have a backward. After them nothing is foretold: the parameters are about to change.
  void begin_step(std::int64_t micro_batches);
  /// The parameters have changed, a micro-batch begins next.
  void rewind();
  /// `block` is acquired now.
  void advance(int block);
  /// What will be acquired from here on, soonest first, up to the first block that takes long enough to compute for the
  /// one after it to arrive meanwhile: embedding and final norm do not. Each block once.
  std::vector<int> upcoming() const;

 private:
  const std::vector<int>& blocks() const { return micro_batches_ > 0 ? training_ : evaluation_; }

  std::vector<int> evaluation_;  // of one micro-batch without a backward
  std::vector<int> training_;
  int final_norm_;
  std::int64_t micro_batches_ = 0;  // with a backward, the current one included
  std::size_t position_ = 0;        // of the block that comes next
  bool lost_ = false;
};

}  // namespace skrull
