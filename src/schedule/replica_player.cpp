#include "replica_player.h"

#include <algorithm>

namespace skrull {

ReplicaPlayer::ReplicaPlayer(int replica, const Plan& plan, const CostModel& cost, std::vector<Span>* spans)
    : replica_(replica), plan_(plan), cost_(cost), spans_(spans) {
  const auto ranks = static_cast<std::size_t>(plan.topology.context_parallel);
  for (auto* per_rank : {&compute_, &communication_, &local_left_, &home_, &ready_, &arrived_}) per_rank->resize(ranks);
  own_shards_.resize(ranks);
}

void ReplicaPlayer::begin_micro_batch(std::size_t micro_batch) {
  const auto replica = static_cast<std::size_t>(replica_);
  kernels_ = micro_batch_kernels(plan_, replica_, plan_.micro_batches[replica][micro_batch], cost_);
  current_ = {};
  current_.empty = kernels_.empty;
  current_.ranks.resize(kernels_.ranks.size());
  for (std::size_t rank = 0; rank < kernels_.ranks.size(); ++rank) current_.ranks[rank].begin = compute_[rank];
  for (auto& ends : step_ends_) ends.assign(kernels_.rings.size(), {});
  for (std::size_t ring = 0; ring < kernels_.rings.size(); ++ring) {
    for (auto& ends : step_ends_) ends[ring].resize(kernels_.rings[ring].ranks.size());
    current_.rings.push_back({kernels_.rings[ring].ranks, kernels_.rings[ring].sequences});
  }
}

void ReplicaPlayer::play(const Block& block) {
  if (kernels_.empty) return;
  block_ = block;
  switch (block.pass) {
    case Pass::forward:
    case Pass::recompute:
      layer_forward();
      break;
    case Pass::head:
      for (std::size_t rank = 0; rank < compute_.size(); ++rank)
        compute(rank, Activity::head, kernels_.ranks[rank].head);
      break;
    case Pass::backward:
      layer_backward();
      break;
  }
}

void ReplicaPlayer::end_micro_batch(bool wait) {
  const double end = latest();
  current_.begin = current_.ranks.front().begin;
  for (std::size_t rank = 0; rank < compute_.size(); ++rank) {
    current_.begin = std::min(current_.begin, current_.ranks[rank].begin);
    current_.ranks[rank].end = compute_[rank];
  }
  current_.end = end;
  if (wait) hold_until(end);
  done_.push_back(std::move(current_));
}

void ReplicaPlayer::hold_until(double seconds) {
  for (double& rank : compute_) rank = std::max(rank, seconds);
}

double ReplicaPlayer::latest() const {
  return *std::max_element(compute_.begin(), compute_.end());
}

void ReplicaPlayer::layer_forward() {
  for (std::size_t rank = 0; rank < compute_.size(); ++rank) {
    const RankKernels& kernels = kernels_.ranks[rank];
    compute(rank, Activity::fixed, cost_.profile().overhead.layer_forward_s);
    compute(rank, Activity::linear, kernels.linear_forward);
    communication_[rank] = std::max(communication_[rank], compute_[rank]);
    compute(rank, Activity::local_attention, kernels.local_forward);
    for (const RingSeat& seat : kernels.seats) {
      compute(rank, Activity::ring_attention, kernels_.rings[seat.ring].step_forward[seat.position], seat.ring);
    }
  }
  for (std::size_t index = 0; index < kernels_.rings.size(); ++index) {
    const RingKernels& ring = kernels_.rings[index];
    for (std::size_t step = 1; step < ring.ranks.size(); ++step) {
      std::fill_n(ready_.begin(), ring.ranks.size(), 0.0);
      hop(index, step, ring.hops.forward);
      for (std::size_t position = 0; position < ring.ranks.size(); ++position) {
        const auto rank = static_cast<std::size_t>(ring.ranks[position]);
        compute_[rank] = std::max(compute_[rank], arrived_[position]);
        compute(rank, Activity::ring_attention, ring.step_forward[position], index, step);
      }
    }
  }
}

void ReplicaPlayer::layer_backward() {
  for (std::size_t rank = 0; rank < compute_.size(); ++rank) {
    const RankKernels& kernels = kernels_.ranks[rank];
    compute(rank, Activity::fixed, cost_.profile().overhead.layer_backward_s);
    compute(rank, Activity::linear, kernels.linear_backward);
    communication_[rank] = std::max(communication_[rank], compute_[rank]);
    local_left_[rank] = kernels.local_backward;
    own_shards_[rank] = 0;
    home_[rank] = 0.0;
  }
  for (std::size_t ring = 0; ring < kernels_.rings.size(); ++ring) ring_backward(ring);
  for (std::size_t rank = 0; rank < compute_.size(); ++rank) {
    compute(rank, Activity::local_attention, local_left_[rank]);
    compute_[rank] = std::max(compute_[rank], home_[rank]);
  }
}

void ReplicaPlayer::ring_backward(std::size_t index) {
  const RingKernels& ring = kernels_.rings[index];
  const std::size_t size = ring.ranks.size();
  for (const int member : ring.ranks) {
    const auto rank = static_cast<std::size_t>(member);
    const std::size_t next = own_shards_[rank];
    const auto& seats = kernels_.ranks[rank].seats;
    if (next < seats.size() && seats[next].ring == index) compute_next_own_shard(rank);
  }
  for (std::size_t step = 1; step < size; ++step) {
    // Step t leaves its end where step t - 2 had it, after hop t has looked.
    std::vector<double>& ends = step_ends_[step % 2][index];
    std::copy(ends.begin(), ends.end(), ready_.begin());
    if (step == 1) std::fill_n(ready_.begin(), size, 0.0);
    hop(index, step, ring.hops.backward);
    for (std::size_t position = 0; position < size; ++position) {
      const auto rank = static_cast<std::size_t>(ring.ranks[position]);
      wait_usefully(rank, arrived_[position]);
      compute(rank, Activity::ring_attention, ring.step_backward[position], index, step);
      ends[position] = compute_[rank];
    }
  }
  const std::vector<double>& ends = step_ends_[(size - 1) % 2][index];
  std::copy(ends.begin(), ends.end(), ready_.begin());
  hop(index, size, ring.hops.homeward);
  for (std::size_t position = 0; position < size; ++position) {
    double& home = home_[static_cast<std::size_t>(ring.ranks[position])];
    home = std::max(home, arrived_[position]);
  }
}

void ReplicaPlayer::compute(std::size_t rank, Activity activity, double seconds, std::size_t ring, std::size_t step) {
  const double begin = compute_[rank];
  compute_[rank] += seconds;
  record(rank, activity, begin, compute_[rank], ring, step);
}

void ReplicaPlayer::compute_next_own_shard(std::size_t rank) {
  const RingSeat& seat = kernels_.ranks[rank].seats[own_shards_[rank]++];
  compute(rank, Activity::ring_attention, kernels_.rings[seat.ring].step_backward[seat.position], seat.ring);
  step_ends_[0][seat.ring][seat.position] = compute_[rank];
}

void ReplicaPlayer::wait_usefully(std::size_t rank, double seconds) {
  while (compute_[rank] < seconds) {
    const double slice = std::min(local_left_[rank], seconds - compute_[rank]);
    if (slice > 0.0) {
      compute(rank, Activity::local_attention, slice);
      local_left_[rank] -= slice;
      // A slice of the whole wait ends exactly with it, whatever rounding made of the sum.
      if (local_left_[rank] > 0.0) compute_[rank] = seconds;
    } else if (own_shards_[rank] < kernels_.ranks[rank].seats.size()) {
      compute_next_own_shard(rank);
    } else {
      compute_[rank] = seconds;
    }
  }
}

void ReplicaPlayer::hop(std::size_t ring, std::size_t step, double seconds) {
  const std::vector<int>& ranks = kernels_.rings[ring].ranks;
  const std::size_t size = ranks.size();
  for (std::size_t position = 0; position < size; ++position) {
    ready_[position] = std::max(ready_[position], communication_[static_cast<std::size_t>(ranks[position])]);
  }
  for (std::size_t position = 0; position < size; ++position) {
    const double begin =
        std::max({ready_[(position + size - 1) % size], ready_[position], ready_[(position + 1) % size]});
    const auto rank = static_cast<std::size_t>(ranks[position]);
    arrived_[position] = communication_[rank] = begin + seconds;
    record(rank, Activity::hop, begin, begin + seconds, ring, step);
  }
}

void ReplicaPlayer::record(std::size_t rank, Activity activity, double begin, double end, std::size_t ring,
                           std::size_t step) {
  current_.ranks[rank].seconds[static_cast<std::size_t>(activity)] += end - begin;
  if (spans_ == nullptr || begin == end) return;
  Span span;
  span.begin = begin;
  span.end = end;
  span.replica = replica_;
  span.rank = static_cast<std::int32_t>(rank);
  span.micro_batch = block_.micro_batch;
  span.layer = block_.layer;
  if (ring != none) {
    span.ring = static_cast<std::int32_t>(ring);
    span.step = static_cast<std::int32_t>(step);
  }
  span.activity = activity;
  span.pass = block_.pass;
  spans_->push_back(span);
}

}  // namespace skrull
