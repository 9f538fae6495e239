#pragma once
// A schedule under construction: sequences can be taken out and put back anywhere, and every rank's predicted time is
// kept up to date.

#include <cstdint>
#include <span>
#include <vector>

#include "../policies.h"
#include "placement_costs.h"

namespace skrull {

/// One rank in one micro-batch.
struct DraftRank {
  std::int64_t tokens = 0;
  double local_forward = 0.0;
  RingTime rings;
  double seconds = 0.0;
  std::vector<int> local;  ///< sequences
};

/// All distributed sequences of a micro-batch on the same ranks.
struct DraftRing {
  int micro_batch = 0;
  std::vector<int> ranks;                 ///< ascending
  std::vector<char> holds;                ///< per rank of the CP group: whether it is one of them
  std::vector<double> attention_forward;  ///< per position
  std::vector<RingTime> time;             ///< per position
  double hop_bytes = 0.0;
  Link link = Link::intra_node;
  std::vector<int> sequences;  ///< none: the ring does not exist
};

struct DraftMicroBatch {
  int replica = 0;
  std::vector<DraftRank> ranks;
  std::vector<int> rings;  ///< indices into the draft's rings
  std::int64_t sequences = 0;
};

/// Where a sequence is. Rings are named by their ranks, so that a place outlives its ring.
struct Place {
  int micro_batch = -1;
  std::vector<int> ranks;  ///< one: local
};

/// Micro-batches are slots that belong to a replica; an empty one costs nothing.
class DraftSchedule {
 public:
  /// Empty, with `micro_batches` slots per replica. Must not outlive `costs`.
  DraftSchedule(const PlacementCosts& costs, int micro_batches);

  const PlacementCosts& costs() const { return *costs_; }
  int context_parallel() const { return costs_->request().topology.context_parallel; }
  int data_parallel() const { return costs_->request().topology.data_parallel; }
  int micro_batch_count() const { return static_cast<int>(micro_batches_.size()); }
  int sequence_count() const { return static_cast<int>(place_.size()); }

  const DraftMicroBatch& micro_batch(int index) const { return micro_batches_[static_cast<std::size_t>(index)]; }
  const DraftRing& ring(int index) const { return rings_[static_cast<std::size_t>(index)]; }
  /// Seconds of the slowest rank; 0 when empty.
  double seconds(int micro_batch) const;
  /// Seconds of the slowest replica.
  double schedule_seconds() const;

  bool is_local(int sequence) const { return place_of(sequence).rank >= 0; }
  int micro_batch_of(int sequence) const { return place_of(sequence).micro_batch; }
  /// Of a local sequence.
  int rank_of(int sequence) const { return place_of(sequence).rank; }
  int ring_size_of(int sequence) const;
  /// Copies into `place`, whose storage is reused.
  void copy_place(int sequence, Place& place) const;

  /// Whether `sequence`, which lies nowhere, fits these ranks (one: local) by tokens.
  bool fits(int sequence, int micro_batch, std::span<const int> ranks) const;
  /// Seconds that each rank would have with it; `seconds` has one entry per rank of `ranks`. Returns the most.
  double seconds_with(int sequence, int micro_batch, std::span<const int> ranks) const;

  void remove(int sequence);
  void insert(int sequence, int micro_batch, std::span<const int> ranks);
  /// Gives a micro-batch to another replica.
  void move_micro_batch(int micro_batch, int replica);

  /// As a plan: each replica's micro-batches that are not empty, the longest first.
  ReplicaMicroBatches to_micro_batches() const;

 private:
  struct SequencePlace {
    int micro_batch = -1;
    int rank = -1;  ///< of a local sequence
    int ring = -1;  ///< of a distributed one
    int index = 0;  ///< in the list of its rank or ring
  };

  const SequencePlace& place_of(int sequence) const { return place_[static_cast<std::size_t>(sequence)]; }
  DraftMicroBatch& slot(int index) { return micro_batches_[static_cast<std::size_t>(index)]; }
  double rank_seconds(const DraftRank& rank) const;
  void refresh(DraftRank& rank) const { rank.seconds = rank_seconds(rank); }
  int find_ring(const DraftMicroBatch& micro_batch, std::span<const int> ranks) const;
  int make_ring(int micro_batch, std::span<const int> ranks);
  void add_to_ring(int ring, const ShardCosts& shards, double sign);
  void drop_from(std::vector<int>& list, int index);

  const PlacementCosts* costs_;
  std::vector<DraftMicroBatch> micro_batches_;
  std::vector<DraftRing> rings_;
  std::vector<int> unused_rings_;
  std::vector<SequencePlace> place_;
};

}  // namespace skrull
