#pragma once
// The micro-batches of one rank for any step: a pure function of the token store, a few options and the step.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "skrull/config/choices.h"
#include "skrull/data/epoch_order.h"
#include "skrull/data/micro_batch.h"
#include "skrull/data/token_store.h"
#include "skrull/schedule/scheduler.h"

namespace skrull {

/// How the tokens of a batch weigh in its loss.
enum class LossWeighting {
  token_mean,     ///< 1 / N, N the supervised tokens of the batch
  sequence_mean,  ///< 1 / (S n_s), S the sequences of the batch, n_s the supervised tokens of the sequence
  sum             ///< 1: for evaluation, which divides once at the end
};

LossWeighting weighting_of(LossReduction reduction);

/// The samples of one step over all ranks. The vectors have one entry per sequence.
struct GlobalBatch {
  std::vector<std::int64_t> samples;  ///< indices into the token store
  std::vector<std::int64_t> lengths;
  std::vector<double> token_weights;  ///< of each supervised token of the sequence
  std::int64_t tokens = 0;
  std::int64_t supervised = 0;  ///< N, at least 1: the store holds no sample without
};

/// Lengths and loss weights of these samples.
GlobalBatch describe_batch(const TokenStore& store, std::vector<std::int64_t> samples, LossWeighting weighting);

/// What rank (replica, cp_rank) computes in one micro-batch of `plan`, which was made for `batch`: its whole sequences,
/// then its shards of the rings it is in. Shards keep their positions in the sequence and the labels that were shifted
/// over the whole of it.
MicroBatch assemble_micro_batch(const TokenStore& store, const GlobalBatch& batch, const Plan& plan, int replica,
                                int cp_rank, std::int64_t micro_batch);

/// One step of one rank. Keeps no micro-batch: each is assembled when asked for. Must not outlive the store.
class StepBatches {
 public:
  StepBatches(const TokenStore& store, GlobalBatch batch, Plan plan, int replica, int cp_rank);

  /// The same on every rank.
  std::int64_t micro_batch_count() const { return plan_.micro_batch_count(); }
  MicroBatch micro_batch(std::int64_t index) const;
  const GlobalBatch& batch() const { return batch_; }
  const Plan& plan() const { return plan_; }

 private:
  const TokenStore* store_;
  GlobalBatch batch_;
  Plan plan_;
  int replica_;
  int cp_rank_;
};

struct LoaderOptions {
  Topology topology;
  int rank = 0;  ///< in the world of data_parallel x context_parallel ranks: replica x context_parallel + cp_rank
  std::string policy = policy_names().front();
  std::shared_ptr<const CostModel> cost;  ///< what the policy plans by
  SearchOptions search;
  std::int64_t bucket_tokens = 0;
  std::int64_t global_batch_size = 1;  ///< sequences
  DataOrder order = DataOrder::shuffled;
  LossWeighting weighting = LossWeighting::token_mean;
  std::uint64_t seed = 0;
};

/// Gives every step of a training run, or with evaluation_options() of an evaluation. Not for use by several
/// threads at once. Must not outlive the store.
class Loader {
 public:
  /// `samples`: the part of the store to use, e.g. of a split; at least one.
  Loader(const TokenStore& store, std::vector<std::int64_t> samples, const LoaderOptions& options);

  std::int64_t sample_count() const { return static_cast<std::int64_t>(samples_.size()); }
  std::int64_t steps_per_epoch() const { return order_.steps_per_epoch(); }
  /// Any step from 0 on, in any order of calls.
  GlobalBatch global_batch(std::int64_t step);
  /// The plan of a batch by the options' policy. Throws what make_plan throws.
  Plan plan(const GlobalBatch& batch) const;
  StepBatches step(std::int64_t step);

 private:
  const TokenStore* store_;
  std::vector<std::int64_t> samples_;
  LoaderOptions options_;
  EpochOrder order_;
};

/// Options of a pass over `samples` in order, each once (one epoch of a Loader): losses are summed, and a batch is
/// large enough to give every replica about four full micro-batches.
LoaderOptions evaluation_options(const LoaderOptions& training, const TokenStore& store,
                                 const std::vector<std::int64_t>& samples);

/// All samples of a store.
std::vector<std::int64_t> all_samples(const TokenStore& store);

/// Throws InvalidInput when a sample does not fit into a micro-batch: names the row of the longest one and the least
/// bucket_tokens or context_parallel_size that would do.
void check_bucket_tokens(const TokenStore& store, const std::vector<std::int64_t>& samples, std::int64_t bucket_tokens,
                         int context_parallel);

}  // namespace skrull
