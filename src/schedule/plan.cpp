#include "skrull/schedule/plan.h"

#include <algorithm>

#include "skrull/core/error.h"

namespace skrull {
namespace {

/// Checks one plan; counts how often each sequence occurs on the way.
class PlanChecker {
 public:
  explicit PlanChecker(const Plan& plan) : plan_(plan), uses_(plan.lengths.size()) {}

  void check() {
    check_shape();
    for (std::size_t replica = 0; replica < plan_.micro_batches.size(); ++replica) check_replica(replica);
    for (std::size_t sequence = 0; sequence < uses_.size(); ++sequence) {
      require(uses_[sequence] == 1, "plan: sequence {} is computed {} times, expected once", sequence, uses_[sequence]);
    }
  }

 private:
  void check_shape() const {
    const Topology& topology = plan_.topology;
    require(topology.data_parallel >= 1 && topology.context_parallel >= 1 && plan_.bucket_tokens >= 1,
            "plan: {} replicas, {} context-parallel ranks, bucket_tokens {}: each must be at least 1",
            topology.data_parallel, topology.context_parallel, plan_.bucket_tokens);
    require(plan_.micro_batches.size() == static_cast<std::size_t>(topology.data_parallel),
            "plan: micro-batches of {} replicas, expected {}", plan_.micro_batches.size(), topology.data_parallel);
    for (std::size_t i = 0; i < plan_.lengths.size(); ++i) {
      require(plan_.lengths[i] >= 1, "plan: sequence {} has {} tokens, expected at least 1", i, plan_.lengths[i]);
    }
  }

  void check_replica(std::size_t replica) {
    const auto& micro_batches = plan_.micro_batches[replica];
    require(micro_batches.size() == plan_.micro_batches.front().size(),
            "plan: replica {} has {} micro-batches and replica 0 has {}, expected equal numbers", replica,
            micro_batches.size(), plan_.micro_batches.front().size());
    bool ended = false;
    for (std::size_t k = 0; k < micro_batches.size(); ++k) {
      const std::string where = fmt::format("plan: replica {}, micro-batch {}", replica, k);
      const bool empty = check_micro_batch(micro_batches[k], where) == 0;
      require(empty || !ended, "{}: comes after an empty one, expected the empty ones at the end", where);
      ended = empty;
    }
  }

  /// Returns the number of its sequences.
  std::int64_t check_micro_batch(const PlannedMicroBatch& micro_batch, const std::string& where) {
    const auto ranks = static_cast<std::size_t>(plan_.topology.context_parallel);
    require(micro_batch.local.size() == ranks, "{}: local sequences of {} context-parallel ranks, expected {}", where,
            micro_batch.local.size(), ranks);
    std::vector<std::int64_t> tokens(ranks);
    std::int64_t sequences = 0;
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      for (const std::int64_t sequence : micro_batch.local[rank]) {
        tokens[rank] += use(sequence, where);
        ++sequences;
      }
    }
    for (const DistributedSequence& distributed : micro_batch.distributed) {
      check_ring(distributed, where);
      const std::int64_t length = use(distributed.sequence, where);
      const int size = static_cast<int>(distributed.ranks.size());
      for (int i = 0; i < size; ++i) {
        tokens[static_cast<std::size_t>(distributed.ranks[static_cast<std::size_t>(i)])] +=
            zigzag_shard_length(length, size, i);
      }
      ++sequences;
    }
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      require(tokens[rank] <= plan_.bucket_tokens, "{}: rank {} holds {} tokens, more than bucket_tokens {}", where,
              rank, tokens[rank], plan_.bucket_tokens);
    }
    return sequences;
  }

  void check_ring(const DistributedSequence& distributed, const std::string& where) const {
    const std::vector<int>& ring = distributed.ranks;
    require(ring.size() >= 2, "{}: sequence {} is distributed over {} rank, expected at least 2", where,
            distributed.sequence, ring.size());
    for (std::size_t i = 0; i < ring.size(); ++i) {
      require(ring[i] >= 0 && ring[i] < plan_.topology.context_parallel && (i == 0 || ring[i - 1] < ring[i]),
              "{}: sequence {} has the ring [{}], expected ascending ranks below {}", where, distributed.sequence,
              fmt::join(ring, ", "), plan_.topology.context_parallel);
    }
  }

  /// Marks one use; returns the sequence's length.
  std::int64_t use(std::int64_t sequence, const std::string& where) {
    require(sequence >= 0 && static_cast<std::size_t>(sequence) < uses_.size(),
            "{}: sequence {} of a global batch of {}", where, sequence, uses_.size());
    ++uses_[static_cast<std::size_t>(sequence)];
    return plan_.lengths[static_cast<std::size_t>(sequence)];
  }

  const Plan& plan_;
  std::vector<int> uses_;
};

}  // namespace

PlannedMicroBatch empty_micro_batch(int context_parallel) {
  PlannedMicroBatch micro_batch;
  micro_batch.local.resize(static_cast<std::size_t>(context_parallel));
  return micro_batch;
}

bool is_empty(const PlannedMicroBatch& micro_batch) {
  return micro_batch.distributed.empty() && std::all_of(micro_batch.local.begin(), micro_batch.local.end(),
                                                        [](const auto& sequences) { return sequences.empty(); });
}

std::int64_t tokens_in_rings(const Plan& plan) {
  std::int64_t tokens = 0;
  for (const auto& replica : plan.micro_batches) {
    for (const PlannedMicroBatch& micro_batch : replica) {
      for (const DistributedSequence& distributed : micro_batch.distributed) {
        tokens += plan.lengths.at(static_cast<std::size_t>(distributed.sequence));
      }
    }
  }
  return tokens;
}

void even_out(Plan& plan) {
  std::size_t most = 0;
  for (const auto& replica : plan.micro_batches) most = std::max(most, replica.size());
  for (auto& replica : plan.micro_batches) replica.resize(most, empty_micro_batch(plan.topology.context_parallel));
}

void validate_plan(const Plan& plan) {
  PlanChecker(plan).check();
}

}  // namespace skrull
