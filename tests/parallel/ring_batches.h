#pragma once
// Micro-batches with rings, for tests: from a plan, without data.

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <utility>
#include <vector>

#include "skrull/core/rng.h"
#include "skrull/data/micro_batch.h"
#include "skrull/schedule/plan.h"

namespace skrull::test {

/// A micro-batch of one replica.
struct PlannedBatch {
  std::vector<std::int64_t> lengths;
  PlannedMicroBatch micro_batch;
};

/// What `rank` holds; `sample` is the index of the sequence. Ids are those indices.
inline MicroBatch batch_of_rank(const PlannedBatch& planned, int rank) {
  MicroBatch batch;
  const auto add_rows = [&](std::int64_t sequence, std::int64_t rows) {
    batch.ids.insert(batch.ids.end(), static_cast<std::size_t>(rows), static_cast<std::int32_t>(sequence));
  };
  for (const std::int64_t sequence : planned.micro_batch.local[static_cast<std::size_t>(rank)]) {
    const std::int64_t length = planned.lengths[static_cast<std::size_t>(sequence)];
    batch.local.push_back({batch.tokens(), length, sequence});
    add_rows(sequence, length);
  }
  std::vector<std::vector<int>> rings;
  for (const DistributedSequence& distributed : planned.micro_batch.distributed) {
    if (std::find(rings.begin(), rings.end(), distributed.ranks) == rings.end()) rings.push_back(distributed.ranks);
  }
  for (const std::vector<int>& ranks : rings) {
    const auto place = std::find(ranks.begin(), ranks.end(), rank);
    if (place == ranks.end()) continue;
    Ring ring{ranks, static_cast<int>(place - ranks.begin()), {}};
    for (const DistributedSequence& distributed : planned.micro_batch.distributed) {
      if (distributed.ranks != ranks) continue;
      const std::int64_t length = planned.lengths[static_cast<std::size_t>(distributed.sequence)];
      const auto chunks = zigzag_shard(length, static_cast<int>(ranks.size()), ring.position);
      ring.shards.push_back({batch.tokens(), chunks, length, distributed.sequence});
      add_rows(distributed.sequence, ring.shards.back().length());
    }
    batch.rings.push_back(std::move(ring));
  }
  return batch;
}

inline std::int64_t largest_share(const PlannedBatch& planned) {
  std::int64_t largest = 0;
  for (std::size_t rank = 0; rank < planned.micro_batch.local.size(); ++rank) {
    largest = std::max(largest, batch_of_rank(planned, static_cast<int>(rank)).tokens());
  }
  return largest;
}

/// Sequences of these lengths, all on the ring of all ranks.
inline PlannedBatch on_one_ring(int ranks, std::vector<std::int64_t> lengths) {
  PlannedBatch planned;
  planned.lengths = std::move(lengths);
  planned.micro_batch.local.resize(static_cast<std::size_t>(ranks));
  std::vector<int> ring(static_cast<std::size_t>(ranks));
  std::iota(ring.begin(), ring.end(), 0);
  for (std::size_t i = 0; i < planned.lengths.size(); ++i) {
    planned.micro_batch.distributed.push_back({static_cast<std::int64_t>(i), ring});
  }
  return planned;
}

/// Up to `most` sequences of 1 to `longest` tokens, each on a random rank or a random ring.
inline PlannedBatch random_batch(std::uint64_t seed, int ranks, std::uint64_t most, std::uint64_t longest) {
  Rng rng(seed, "rings");
  PlannedBatch planned;
  planned.micro_batch.local.resize(static_cast<std::size_t>(ranks));
  const std::uint64_t count = 1 + rng.below(most);
  for (std::uint64_t i = 0; i < count; ++i) {
    planned.lengths.push_back(1 + static_cast<std::int64_t>(rng.below(longest)));
    std::vector<int> ring;
    for (int rank = 0; rank < ranks; ++rank) {
      if (rng.below(3) > 0) ring.push_back(rank);
    }
    if (ring.size() >= 2) {
      planned.micro_batch.distributed.push_back({static_cast<std::int64_t>(i), ring});
    } else {
      const std::uint64_t rank = rng.below(static_cast<std::uint64_t>(ranks));
      planned.micro_batch.local[rank].push_back(static_cast<std::int64_t>(i));
    }
  }
  return planned;
}

}  // namespace skrull::test
