#include "block_ledger.h"

#include "skrull/core/error.h"

namespace skrull {

BlockLedger::BlockLedger(int blocks) : blocks_(static_cast<std::size_t>(blocks)) {}

void BlockLedger::require_block(int block) const {
  require(block >= 0 && block < static_cast<int>(blocks_.size()), "block {} of {}", block, blocks_.size());
}

void BlockLedger::acquire(int block) {
  require_block(block);
  ++blocks_[static_cast<std::size_t>(block)].holders;
}

void BlockLedger::release(int block) {
  require_block(block);
  int& holders = blocks_[static_cast<std::size_t>(block)].holders;
  require(holders > 0, "block {} is released more often than acquired", block);
  --holders;
}

void BlockLedger::require_released(const char* operation) const {
  for (std::size_t block = 0; block < blocks_.size(); ++block) {
    require(blocks_[block].holders == 0, "{}: block {} was acquired and not released", operation, block);
  }
}

void BlockLedger::begin_step(std::int64_t micro_batches) {
  require(phase_ != Phase::accumulating, "a step begins before the gradients of the last one were finished");
  require(micro_batches >= 1, "a step of {} micro-batches", micro_batches);
  require_released("begin_step");
  for (Block& block : blocks_) {
    block.ready = 0;
    block.opened = false;
  }
  phase_ = Phase::accumulating;
  micro_batches_ = micro_batches;
  micro_batch_ = 0;
  ready_blocks_ = 0;
}

void BlockLedger::require_open(int block, const char* operation) const {
  require_block(block);
  require(phase_ == Phase::accumulating, "{} of block {} outside a step", operation, block);
  require(micro_batch_ < micro_batches_, "{} of block {} after the last of {} micro-batches", operation, block,
          micro_batches_);
  require(blocks_[static_cast<std::size_t>(block)].ready == micro_batch_,
          "{} of block {}, which is ready already in micro-batch {} of {}", operation, block, micro_batch_ + 1,
          micro_batches_);
}

bool BlockLedger::open(int block) {
  require_open(block, "accumulator");
  bool& opened = blocks_[static_cast<std::size_t>(block)].opened;
  if (opened) return false;
  opened = true;
  return true;
}

bool BlockLedger::ready(int block) {
  require_open(block, "ready");
  blocks_[static_cast<std::size_t>(block)].opened = false;
  const std::int64_t done = ++blocks_[static_cast<std::size_t>(block)].ready;
  if (++ready_blocks_ == static_cast<int>(blocks_.size())) {
    ready_blocks_ = 0;
    ++micro_batch_;
  }
  return done == micro_batches_;
}

void BlockLedger::finish_gradients() {
  require(phase_ == Phase::accumulating, "finish_gradients outside a step");
  require(micro_batch_ == micro_batches_,
          "finish_gradients in micro-batch {} of {}, in which {} of {} blocks are ready", micro_batch_ + 1,
          micro_batches_, ready_blocks_, blocks_.size());
  require_released("finish_gradients");
  phase_ = Phase::finished;
}

void BlockLedger::require_finished(const char* operation) const {
  require(phase_ == Phase::finished, "{} needs the finished gradients of a step", operation);
}

void BlockLedger::update() {
  require_finished("update");
  require_released("update");
  phase_ = Phase::idle;
}

void BlockLedger::require_between_steps(const char* operation) const {
  require(phase_ != Phase::accumulating, "{} in the middle of a step", operation);
  require_released(operation);
}

}  // namespace skrull
