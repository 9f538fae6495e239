#pragma once
// Who holds which block, and how far each block's gradient is in the step: turns misuse into an error. Shared by every
// way of keeping parameters.

#include <cstdint>
#include <vector>

namespace skrull {

class BlockLedger {
 public:
  explicit BlockLedger(int blocks);

  void acquire(int block);
  void release(int block);

  void begin_step(std::int64_t micro_batches);
  /// An accumulator is asked for. True when it is the block's first use in this micro-batch.
  bool open(int block);
  /// No micro-batch of this step has made the block ready yet.
  bool in_first_micro_batch(int block) const { return blocks_.at(static_cast<std::size_t>(block)).ready == 0; }
  /// The block is ready in the current micro-batch. True in the last one: its gradient is complete on this rank.
  bool ready(int block);
  void finish_gradients();
  /// The gradients must be summed and not yet used.
  void require_finished(const char* operation) const;
  void update();
  /// No step may be going on.
  void require_between_steps(const char* operation) const;

 private:
  enum class Phase { idle, accumulating, finished };

  void require_block(int block) const;
  void require_open(int block, const char* operation) const;
  void require_released(const char* operation) const;

  struct Block {
    int holders = 0;
    std::int64_t ready = 0;  // micro-batches of this step
    bool opened = false;     // in the current micro-batch
  };
  std::vector<Block> blocks_;
  Phase phase_ = Phase::idle;
  std::int64_t micro_batches_ = 0;
  std::int64_t micro_batch_ = 0;  // that at least one block is not ready in
  int ready_blocks_ = 0;          // of the current micro-batch
};

}  // namespace skrull
