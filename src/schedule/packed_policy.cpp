#include <algorithm>
#include <numeric>

#include "policies.h"

namespace skrull {
namespace {

/// A micro-batch under construction and the tokens that each CP rank holds in it.
struct OpenMicroBatch {
  PlannedMicroBatch planned;
  std::vector<std::int64_t> tokens;
};

/// Tokens of one sequence on each CP rank.
std::vector<std::int64_t> shard_lengths(std::int64_t length, int ranks) {
  std::vector<std::int64_t> shards(static_cast<std::size_t>(ranks));
  for (int rank = 0; rank < ranks; ++rank) {
    shards[static_cast<std::size_t>(rank)] = zigzag_shard_length(length, ranks, rank);
  }
  return shards;
}

bool fits(const OpenMicroBatch& open, const std::vector<std::int64_t>& shards, std::int64_t bucket_tokens) {
  for (std::size_t rank = 0; rank < shards.size(); ++rank) {
    if (open.tokens[rank] + shards[rank] > bucket_tokens) return false;
  }
  return true;
}

void add(OpenMicroBatch& open, std::int64_t sequence, const std::vector<std::int64_t>& shards) {
  for (std::size_t rank = 0; rank < shards.size(); ++rank) open.tokens[rank] += shards[rank];
  if (shards.size() == 1) {
    open.planned.local.front().push_back(sequence);
    return;
  }
  std::vector<int> ring(shards.size());
  std::iota(ring.begin(), ring.end(), 0);
  open.planned.distributed.push_back({sequence, std::move(ring)});
}

void add_first_fit(std::vector<OpenMicroBatch>& micro_batches, std::int64_t sequence,
                   const std::vector<std::int64_t>& shards, std::int64_t bucket_tokens) {
  auto place = std::find_if(micro_batches.begin(), micro_batches.end(),
                            [&](const OpenMicroBatch& open) { return fits(open, shards, bucket_tokens); });
  if (place == micro_batches.end()) {
    OpenMicroBatch fresh;
    fresh.planned.local.resize(shards.size());
    fresh.tokens.resize(shards.size());
    place = micro_batches.insert(place, std::move(fresh));
  }
  add(*place, sequence, shards);
}

}  // namespace

ReplicaMicroBatches packed_policy(const PolicyInput& input) {
  const ScheduleRequest& request = input.request;
  const auto replicas = static_cast<std::size_t>(request.topology.data_parallel);
  std::vector<std::vector<OpenMicroBatch>> open(replicas);
  std::vector<std::int64_t> load(replicas);
  for (std::size_t sequence = 0; sequence < request.lengths.size(); ++sequence) {
    const std::int64_t length = request.lengths[sequence];
    const auto lightest = std::min_element(load.begin(), load.end());
    *lightest += length;
    add_first_fit(open[static_cast<std::size_t>(lightest - load.begin())], static_cast<std::int64_t>(sequence),
                  shard_lengths(length, request.topology.context_parallel), request.bucket_tokens);
  }
  ReplicaMicroBatches result(replicas);
  for (std::size_t replica = 0; replica < replicas; ++replica) {
    for (OpenMicroBatch& micro_batch : open[replica]) result[replica].push_back(std::move(micro_batch.planned));
  }
  return result;
}

}  // namespace skrull
