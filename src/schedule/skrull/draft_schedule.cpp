#include "draft_schedule.h"

#include <algorithm>
#include <array>

#include "skrull/core/error.h"

namespace skrull {
namespace {

std::size_t at(int index) {
  return static_cast<std::size_t>(index);
}

}  // namespace

DraftSchedule::DraftSchedule(const PlacementCosts& costs, int micro_batches)
    : costs_(&costs), place_(costs.request().lengths.size()) {
  const Topology& topology = costs.request().topology;
  micro_batches_.resize(at(topology.data_parallel) * at(micro_batches));
  for (int i = 0; i < micro_batch_count(); ++i) {
    DraftMicroBatch& micro_batch = slot(i);
    micro_batch.replica = i % topology.data_parallel;
    micro_batch.ranks.resize(at(topology.context_parallel));
    for (DraftRank& rank : micro_batch.ranks) refresh(rank);
  }
}

double DraftSchedule::rank_seconds(const DraftRank& rank) const {
  const CostModel& cost = costs_->cost();
  return cost.rank_seconds(cost.linear_seconds(rank.tokens), !rank.local.empty(), rank.local_forward, rank.rings);
}

double DraftSchedule::seconds(int micro_batch) const {
  const DraftMicroBatch& slot = micro_batches_[at(micro_batch)];
  if (slot.sequences == 0) return 0.0;
  double slowest = 0.0;
  for (const DraftRank& rank : slot.ranks) slowest = std::max(slowest, rank.seconds);
  return slowest;
}

double DraftSchedule::schedule_seconds() const {
  std::vector<double> replicas(at(data_parallel()));
  for (int i = 0; i < micro_batch_count(); ++i) replicas[at(micro_batch(i).replica)] += seconds(i);
  return *std::max_element(replicas.begin(), replicas.end());
}

int DraftSchedule::ring_size_of(int sequence) const {
  const SequencePlace& place = place_of(sequence);
  return place.rank >= 0 ? 1 : static_cast<int>(rings_[at(place.ring)].ranks.size());
}

void DraftSchedule::copy_place(int sequence, Place& place) const {
  const SequencePlace& current = place_of(sequence);
  place.micro_batch = current.micro_batch;
  if (current.rank >= 0) {
    place.ranks.assign(1, current.rank);
  } else {
    place.ranks = rings_[at(current.ring)].ranks;
  }
}

bool DraftSchedule::fits(int sequence, int micro_batch, std::span<const int> ranks) const {
  const DraftMicroBatch& slot = micro_batches_[at(micro_batch)];
  const std::int64_t bucket = costs_->request().bucket_tokens;
  const ShardCosts& shards = costs_->shards(sequence, static_cast<int>(ranks.size()));
  for (std::size_t position = 0; position < ranks.size(); ++position) {
    if (slot.ranks[at(ranks[position])].tokens + shards.tokens[position] > bucket) return false;
  }
  return true;
}

double DraftSchedule::seconds_with(int sequence, int micro_batch, std::span<const int> ranks) const {
  const DraftMicroBatch& slot = micro_batches_[at(micro_batch)];
  const CostModel& cost = costs_->cost();
  const ShardCosts& shards = costs_->shards(sequence, static_cast<int>(ranks.size()));
  if (ranks.size() == 1) {
    const DraftRank& rank = slot.ranks[at(ranks.front())];
    return cost.rank_seconds(cost.linear_seconds(rank.tokens + shards.tokens.front()), true,
                             rank.local_forward + shards.attention_forward.front(), rank.rings);
  }
  const int known = find_ring(slot, ranks);
  const DraftRing* ring = known >= 0 ? &rings_[at(known)] : nullptr;
  const Link link = ring ? ring->link : ring_link(ranks, slot.replica, costs_->request().topology);
  const RingHops hops =
      cost.ring_hops(static_cast<int>(ranks.size()), shards.hop_bytes + (ring ? ring->hop_bytes : 0.0), link);
  double slowest = 0.0;
  for (std::size_t position = 0; position < ranks.size(); ++position) {
    const DraftRank& rank = slot.ranks[at(ranks[position])];
    RingTime rings = rank.rings;
    double attention = shards.attention_forward[position];
    if (ring) {
      rings -= ring->time[position];
      attention += ring->attention_forward[position];
    }
    rings += cost.ring_time(hops, attention);
    slowest = std::max(slowest, cost.rank_seconds(cost.linear_seconds(rank.tokens + shards.tokens[position]),
                                                  !rank.local.empty(), rank.local_forward, rings));
  }
  return slowest;
}

int DraftSchedule::find_ring(const DraftMicroBatch& micro_batch, std::span<const int> ranks) const {
  for (const int index : micro_batch.rings) {
    const std::vector<int>& known = rings_[at(index)].ranks;
    if (std::equal(known.begin(), known.end(), ranks.begin(), ranks.end())) return index;
  }
  return -1;
}

int DraftSchedule::make_ring(int micro_batch, std::span<const int> ranks) {
  int index = static_cast<int>(rings_.size());
  if (unused_rings_.empty()) {
    rings_.emplace_back();
  } else {
    index = unused_rings_.back();
    unused_rings_.pop_back();
  }
  DraftRing& ring = rings_[at(index)];
  ring.micro_batch = micro_batch;
  ring.ranks.assign(ranks.begin(), ranks.end());
  ring.holds.assign(at(context_parallel()), false);
  for (const int rank : ranks) ring.holds[at(rank)] = true;
  ring.attention_forward.assign(ranks.size(), 0.0);
  ring.time.assign(ranks.size(), RingTime{});
  ring.hop_bytes = 0.0;
  ring.link = ring_link(ranks, slot(micro_batch).replica, costs_->request().topology);
  slot(micro_batch).rings.push_back(index);
  return index;
}

void DraftSchedule::add_to_ring(int ring_index, const ShardCosts& shards, double sign) {
  DraftRing& ring = rings_[at(ring_index)];
  DraftMicroBatch& micro_batch = slot(ring.micro_batch);
  const CostModel& cost = costs_->cost();
  const bool unused = ring.sequences.empty();
  ring.hop_bytes = unused ? 0.0 : ring.hop_bytes + sign * shards.hop_bytes;
  const RingHops hops = cost.ring_hops(static_cast<int>(ring.ranks.size()), ring.hop_bytes, ring.link);
  for (std::size_t position = 0; position < ring.ranks.size(); ++position) {
    DraftRank& rank = micro_batch.ranks[at(ring.ranks[position])];
    rank.tokens += sign > 0.0 ? shards.tokens[position] : -shards.tokens[position];
    rank.rings -= ring.time[position];
    double& attention = ring.attention_forward[position];
    attention = unused ? 0.0 : attention + sign * shards.attention_forward[position];
    ring.time[position] = unused ? RingTime{} : cost.ring_time(hops, attention);
    rank.rings += ring.time[position];
    refresh(rank);
  }
}

void DraftSchedule::drop_from(std::vector<int>& list, int index) {
  list[at(index)] = list.back();
  place_[at(list[at(index)])].index = index;
  list.pop_back();
}

void DraftSchedule::remove(int sequence) {
  SequencePlace& place = place_[at(sequence)];
  DraftMicroBatch& micro_batch = slot(place.micro_batch);
  --micro_batch.sequences;
  if (place.rank >= 0) {
    DraftRank& rank = micro_batch.ranks[at(place.rank)];
    drop_from(rank.local, place.index);
    rank.tokens -= costs_->length(sequence);
    rank.local_forward = rank.local.empty() ? 0.0 : rank.local_forward - costs_->local_forward(sequence);
    refresh(rank);
  } else {
    DraftRing& ring = rings_[at(place.ring)];
    drop_from(ring.sequences, place.index);
    add_to_ring(place.ring, costs_->shards(sequence, static_cast<int>(ring.ranks.size())), -1.0);
    if (ring.sequences.empty()) {
      std::erase(micro_batch.rings, place.ring);
      unused_rings_.push_back(place.ring);
    }
  }
  place = {};
}

void DraftSchedule::insert(int sequence, int micro_batch_index, std::span<const int> ranks) {
  DraftMicroBatch& micro_batch = slot(micro_batch_index);
  SequencePlace& place = place_[at(sequence)];
  place.micro_batch = micro_batch_index;
  ++micro_batch.sequences;
  if (ranks.size() == 1) {
    DraftRank& rank = micro_batch.ranks[at(ranks.front())];
    place.rank = ranks.front();
    place.index = static_cast<int>(rank.local.size());
    rank.local.push_back(sequence);
    rank.tokens += costs_->length(sequence);
    rank.local_forward += costs_->local_forward(sequence);
    refresh(rank);
    return;
  }
  const int known = find_ring(micro_batch, ranks);
  place.ring = known >= 0 ? known : make_ring(micro_batch_index, ranks);
  DraftRing& ring = rings_[at(place.ring)];
  place.index = static_cast<int>(ring.sequences.size());
  ring.sequences.push_back(sequence);
  add_to_ring(place.ring, costs_->shards(sequence, static_cast<int>(ranks.size())), 1.0);
}

void DraftSchedule::move_micro_batch(int index, int replica) {
  DraftMicroBatch& micro_batch = slot(index);
  micro_batch.replica = replica;
  for (const int ring_index : micro_batch.rings) {
    DraftRing& ring = rings_[at(ring_index)];
    ring.link = ring_link(ring.ranks, replica, costs_->request().topology);
    const RingHops hops = costs_->cost().ring_hops(static_cast<int>(ring.ranks.size()), ring.hop_bytes, ring.link);
    for (std::size_t position = 0; position < ring.ranks.size(); ++position) {
      DraftRank& rank = micro_batch.ranks[at(ring.ranks[position])];
      rank.rings -= ring.time[position];
      ring.time[position] = costs_->cost().ring_time(hops, ring.attention_forward[position]);
      rank.rings += ring.time[position];
      refresh(rank);
    }
  }
}

ReplicaMicroBatches DraftSchedule::to_micro_batches() const {
  std::vector<int> order;
  for (int i = 0; i < micro_batch_count(); ++i) {
    if (micro_batch(i).sequences > 0) order.push_back(i);
  }
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return seconds(a) > seconds(b); });
  ReplicaMicroBatches replicas(at(data_parallel()));
  for (const int index : order) {
    const DraftMicroBatch& draft = micro_batch(index);
    PlannedMicroBatch planned;
    for (const DraftRank& rank : draft.ranks) {
      auto& local = planned.local.emplace_back(rank.local.begin(), rank.local.end());
      std::sort(local.begin(), local.end());
    }
    for (const int ring_index : draft.rings) {
      const DraftRing& ring = rings_[at(ring_index)];
      for (const int sequence : ring.sequences) planned.distributed.push_back({sequence, ring.ranks});
    }
    std::sort(planned.distributed.begin(), planned.distributed.end(),
              [](const auto& a, const auto& b) { return a.sequence < b.sequence; });
    replicas[at(draft.replica)].push_back(std::move(planned));
  }
  return replicas;
}

}  // namespace skrull
