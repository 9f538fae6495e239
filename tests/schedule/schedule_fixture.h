#pragma once
// Models and a machine for tests of the scheduler.

#include <algorithm>
#include <cstdint>
#include <vector>

#include "skrull/schedule/cost_model.h"

namespace skrull::test {

/// Sizes of Qwen2.5-0.5B.
inline ModelShape half_billion() {
  return {896, 24, 14, 2, 64, 4864, 151936};
}

/// Sizes of Qwen2.5-7B.
inline ModelShape seven_billion() {
  return {3584, 28, 28, 4, 128, 18944, 152064};
}

/// A made-up cluster of GPUs: short kernels are inefficient, links between nodes slow.
inline HardwareProfile made_up_cluster() {
  using Below = LogLogCurve::BelowFirst;
  HardwareProfile profile;
  profile.name = "made-up";
  profile.linear_peak_flops = {{{1024, 4e14}, {4096, 6e14}}, Below::constant};
  profile.linear_efficiency = {{{64, 0.1}, {512, 0.6}, {4096, 0.95}, {16384, 1.0}}, Below::proportional};
  profile.attention_peak_flops = {{{64, 3e14}, {128, 5e14}}, Below::constant};
  profile.attention_efficiency = {{{64, 0.05}, {1024, 0.6}, {8192, 0.9}, {32768, 1.0}}, Below::proportional};
  profile.overhead = {5e-5, 1e-4, 5e-6, 1.5e-5, 1e-5, 2e-5};
  profile.intra_node = {3e11, 1e-5};
  profile.inter_node = {4e10, 2e-5};
  return profile;
}

inline CostModel half_billion_cost() {
  return CostModel(half_billion(), made_up_cluster());
}

using Sequences = std::vector<std::int64_t>;

/// Indices of a micro-batch's sequences, local ones first, ascending.
inline Sequences sequences_of(const PlannedMicroBatch& micro_batch) {
  Sequences all;
  for (const auto& rank : micro_batch.local) all.insert(all.end(), rank.begin(), rank.end());
  for (const auto& distributed : micro_batch.distributed) all.push_back(distributed.sequence);
  std::sort(all.begin(), all.end());
  return all;
}

/// Indices of the distributed ones, in the plan's order.
inline Sequences distributed_of(const PlannedMicroBatch& micro_batch) {
  Sequences all;
  for (const auto& distributed : micro_batch.distributed) all.push_back(distributed.sequence);
  return all;
}

/// Whether two plans have the same sequences in the same places.
inline bool same_plan(const Plan& a, const Plan& b) {
  const auto same_ring = [](const DistributedSequence& x, const DistributedSequence& y) {
    return x.sequence == y.sequence && x.ranks == y.ranks;
  };
  const auto same_micro_batch = [&](const PlannedMicroBatch& x, const PlannedMicroBatch& y) {
    return x.local == y.local && std::equal(x.distributed.begin(), x.distributed.end(), y.distributed.begin(),
                                            y.distributed.end(), same_ring);
  };
  return a.lengths == b.lengths &&
         std::equal(a.micro_batches.begin(), a.micro_batches.end(), b.micro_batches.begin(), b.micro_batches.end(),
                    [&](const auto& x, const auto& y) {
                      return std::equal(x.begin(), x.end(), y.begin(), y.end(), same_micro_batch);
                    });
}

}  // namespace skrull::test
