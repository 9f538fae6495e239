#pragma once
// Which samples each optimizer step sees: pure functions of counts, seed, epoch and step.

#include <cstdint>
#include <functional>
#include <vector>

#include "skrull/config/choices.h"
#include "skrull/config/train_config.h"

namespace skrull {

/// Steps of one epoch: ceil(samples / global_batch_size), the last one smaller. Both at least 1.
std::int64_t steps_per_epoch(std::int64_t samples, std::int64_t global_batch_size);

/// Optimizer steps of a run: max_steps when positive, else ceil(num_train_epochs x steps_per_epoch); at least 1.
/// Throws InvalidInput when that is beyond counting.
std::int64_t total_steps(std::int64_t steps_per_epoch, double num_train_epochs, std::int64_t max_steps);

struct EpochOrderRequest {
  std::int64_t samples = 0;
  std::int64_t global_batch_size = 1;
  DataOrder order = DataOrder::shuffled;
  std::uint64_t seed = 0;
  /// Tokens of a sample; used by sorted_batches alone.
  std::function<std::int64_t(std::int64_t)> length;
};

/// The samples of an epoch (from 0) in order, each once; consecutive global_batch_size of them make a step.
/// shuffled: a new permutation for each (seed, epoch). sequential: 0, 1, 2, ... sorted_batches: samples sorted by
/// length are cut into batches of neighbours, and the batches come in an order drawn from (seed, epoch); the batch that
/// comes last is the smaller one ("sorted batching", LongAlign, Bai et al. 2024).
std::vector<std::int64_t> epoch_order(const EpochOrderRequest& request, std::int64_t epoch);

/// The samples of any step, keeping the order of one epoch in memory. Not for use by several threads at once.
class EpochOrder {
 public:
  explicit EpochOrder(EpochOrderRequest request);

  std::int64_t steps_per_epoch() const { return steps_per_epoch_; }
  /// The samples of `step` (from 0, running over the epochs); 1 to global_batch_size of them, never of two epochs.
  std::vector<std::int64_t> global_batch(std::int64_t step);

 private:
  EpochOrderRequest request_;
  std::int64_t steps_per_epoch_;
  std::int64_t epoch_ = -1;
  std::vector<std::int64_t> order_;
};

/// Two disjoint sets of samples, each ascending, together all of them.
struct SampleSplit {
  std::vector<std::int64_t> train;
  std::vector<std::int64_t> eval;
};

/// Draws the evaluation samples by seed: a number of them, or ceil(fraction x samples). Throws InvalidInput when
/// nothing would be left to train on.
SampleSplit split_samples(std::int64_t samples, const ValidationSize& val_size, std::uint64_t seed);

}  // namespace skrull
