#include "skrull/data/loader.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "skrull/core/error.h"
#include "skrull/core/narrow.h"

namespace skrull {
namespace {

EpochOrderRequest order_request(const TokenStore& store, const std::vector<std::int64_t>& samples,
                                const LoaderOptions& options) {
  require(!samples.empty(), "loader: no samples");
  EpochOrderRequest request{static_cast<std::int64_t>(samples.size()), options.global_batch_size, options.order,
                            options.seed, nullptr};
  if (options.order == DataOrder::sorted_batches) {
    request.length = [&store, samples](std::int64_t i) { return store.length(samples[static_cast<std::size_t>(i)]); };
  }
  return request;
}

double token_weight(LossWeighting weighting, const GlobalBatch& batch, std::int64_t supervised_of_sequence) {
  switch (weighting) {
    case LossWeighting::token_mean:
      return 1.0 / static_cast<double>(batch.supervised);
    case LossWeighting::sequence_mean:
      return 1.0 / (static_cast<double>(batch.samples.size()) * static_cast<double>(supervised_of_sequence));
    case LossWeighting::sum:
      break;
  }
  return 1.0;
}

/// Tokens `range` of a sample, with their positions in it.
void append_tokens(MicroBatch& micro_batch, const TokenStore& store, std::int64_t sample, const TokenRange& range,
                   double weight) {
  const auto begin = static_cast<std::size_t>(range.begin);
  const auto count = static_cast<std::size_t>(range.length());
  const auto ids = store.ids(sample).subspan(begin, count);
  const auto labels = store.labels(sample).subspan(begin, count);
  micro_batch.ids.insert(micro_batch.ids.end(), ids.begin(), ids.end());
  micro_batch.labels.insert(micro_batch.labels.end(), labels.begin(), labels.end());
  micro_batch.positions.resize(micro_batch.ids.size());
  std::iota(micro_batch.positions.end() - static_cast<std::ptrdiff_t>(count), micro_batch.positions.end(),
            narrow<std::int32_t>(range.begin));
  for (const std::int32_t label : labels) {
    micro_batch.weights.push_back(label == ignored_label ? 0.0F : static_cast<float>(weight));
  }
}

/// The rings of this rank without their shards yet, and which sequences each holds.
struct PlannedRing {
  Ring ring;
  std::vector<std::int64_t> sequences;
};

/// Sequences with equal ranks form one ring; rings are in the order of their first sequence in the plan, which is the
/// same on all ranks.
std::vector<PlannedRing> rings_of(const PlannedMicroBatch& planned, int cp_rank) {
  std::vector<PlannedRing> rings;
  for (const DistributedSequence& distributed : planned.distributed) {
    const std::vector<int>& ranks = distributed.ranks;
    const auto place = std::find(ranks.begin(), ranks.end(), cp_rank);
    if (place == ranks.end()) continue;
    auto found =
        std::find_if(rings.begin(), rings.end(), [&](const PlannedRing& known) { return known.ring.ranks == ranks; });
    if (found == rings.end()) {
      PlannedRing planned_ring;
      planned_ring.ring.ranks = ranks;
      planned_ring.ring.position = static_cast<int>(place - ranks.begin());
      found = rings.insert(rings.end(), std::move(planned_ring));
    }
    found->sequences.push_back(distributed.sequence);
  }
  return rings;
}

}  // namespace

LossWeighting weighting_of(LossReduction reduction) {
  return reduction == LossReduction::token_mean ? LossWeighting::token_mean : LossWeighting::sequence_mean;
}

GlobalBatch describe_batch(const TokenStore& store, std::vector<std::int64_t> samples, LossWeighting weighting) {
  GlobalBatch batch;
  batch.samples = std::move(samples);
  for (const std::int64_t sample : batch.samples) {
    batch.lengths.push_back(store.length(sample));
    batch.tokens += store.length(sample);
    batch.supervised += store.supervised(sample);
  }
  for (const std::int64_t sample : batch.samples) {
    batch.token_weights.push_back(token_weight(weighting, batch, store.supervised(sample)));
  }
  return batch;
}

MicroBatch assemble_micro_batch(const TokenStore& store, const GlobalBatch& batch, const Plan& plan, int replica,
                                int cp_rank, std::int64_t micro_batch) {
  const auto& planned =
      plan.micro_batches.at(static_cast<std::size_t>(replica)).at(static_cast<std::size_t>(micro_batch));
  MicroBatch assembled;
  for (const std::int64_t sequence : planned.local.at(static_cast<std::size_t>(cp_rank))) {
    const auto index = static_cast<std::size_t>(sequence);
    const std::int64_t sample = batch.samples.at(index);
    const std::int64_t length = batch.lengths.at(index);
    assembled.local.push_back({assembled.tokens(), length, sample});
    append_tokens(assembled, store, sample, {0, length}, batch.token_weights.at(index));
  }
  for (PlannedRing& planned_ring : rings_of(planned, cp_rank)) {
    Ring& ring = planned_ring.ring;
    for (const std::int64_t sequence : planned_ring.sequences) {
      const auto index = static_cast<std::size_t>(sequence);
      const std::int64_t sample = batch.samples.at(index);
      const std::int64_t length = batch.lengths.at(index);
      const auto chunks = zigzag_shard(length, static_cast<int>(ring.ranks.size()), ring.position);
      ring.shards.push_back({assembled.tokens(), chunks, length, sample});
      for (const TokenRange& chunk : chunks) {
        append_tokens(assembled, store, sample, chunk, batch.token_weights.at(index));
      }
    }
    assembled.rings.push_back(std::move(ring));
  }
  return assembled;
}

StepBatches::StepBatches(const TokenStore& store, GlobalBatch batch, Plan plan, int replica, int cp_rank)
    : store_(&store), batch_(std::move(batch)), plan_(std::move(plan)), replica_(replica), cp_rank_(cp_rank) {}

MicroBatch StepBatches::micro_batch(std::int64_t index) const {
  return assemble_micro_batch(*store_, batch_, plan_, replica_, cp_rank_, index);
}

Loader::Loader(const TokenStore& store, std::vector<std::int64_t> samples, const LoaderOptions& options)
    : store_(&store), samples_(std::move(samples)), options_(options), order_(order_request(store, samples_, options)) {
  const Topology& topology = options.topology;
  require(options.rank >= 0 && options.rank < topology.data_parallel * topology.context_parallel,
          "loader: rank {} of {} x {}", options.rank, topology.data_parallel, topology.context_parallel);
  require(options.cost != nullptr, "loader: no cost model to plan by");
}

GlobalBatch Loader::global_batch(std::int64_t step) {
  std::vector<std::int64_t> chosen = order_.global_batch(step);
  for (std::int64_t& index : chosen) index = samples_[static_cast<std::size_t>(index)];
  return describe_batch(*store_, std::move(chosen), options_.weighting);
}

Plan Loader::plan(const GlobalBatch& batch) const {
  return make_plan(options_.policy, {batch.lengths, options_.topology, options_.bucket_tokens}, *options_.cost,
                   options_.search);
}

StepBatches Loader::step(std::int64_t step) {
  GlobalBatch batch = global_batch(step);
  Plan plan = this->plan(batch);
  const int context_parallel = options_.topology.context_parallel;
  return {*store_, std::move(batch), std::move(plan), options_.rank / context_parallel,
          options_.rank % context_parallel};
}

LoaderOptions evaluation_options(const LoaderOptions& training, const TokenStore& store,
                                 const std::vector<std::int64_t>& samples) {
  constexpr std::int64_t micro_batches = 4;
  std::int64_t tokens = 0;
  for (const std::int64_t sample : samples) tokens += store.length(sample);
  const auto mean_length = static_cast<double>(tokens) / static_cast<double>(samples.size());
  const Topology& topology = training.topology;
  const auto batch_tokens = static_cast<double>(micro_batches * topology.data_parallel * topology.context_parallel) *
                            static_cast<double>(training.bucket_tokens);
  LoaderOptions options = training;
  options.global_batch_size = std::max<std::int64_t>(topology.data_parallel, std::llround(batch_tokens / mean_length));
  options.order = DataOrder::sequential;
  options.weighting = LossWeighting::sum;
  options.search.budget_ms = 0.0;  // every rank plans for itself: all must find the same
  return options;
}

std::vector<std::int64_t> all_samples(const TokenStore& store) {
  std::vector<std::int64_t> samples(static_cast<std::size_t>(store.size()));
  std::iota(samples.begin(), samples.end(), std::int64_t{0});
  return samples;
}

void check_bucket_tokens(const TokenStore& store, const std::vector<std::int64_t>& samples, std::int64_t bucket_tokens,
                         int context_parallel) {
  std::int64_t worst = -1;
  std::int64_t least = 0;
  for (const std::int64_t sample : samples) {
    const std::int64_t needed = largest_zigzag_shard(store.length(sample), context_parallel);
    if (needed <= least) continue;
    least = needed;
    worst = sample;
  }
  if (least <= bucket_tokens) return;
  throw_invalid_input(
      "{}: the row has {} tokens{} and does not fit into bucket_tokens {}: set bucket_tokens to at least "
      "{}, or cutoff_len to at most {}, or context_parallel_size to at least {}",
      store.describe(worst), store.length(worst),
      context_parallel == 1 ? "" : fmt::format(" ({} on each context-parallel rank)", least), bucket_tokens, least,
      checked_multiply(bucket_tokens, context_parallel), smallest_ring(store.length(worst), bucket_tokens));
}

}  // namespace skrull
