#pragma once
// DACP word for word as the Skrull paper prints it, kept to show what is wrong with it: a roll-back changes the room
// and load of one rank although all ranks now hold a share.

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <optional>
#include <span>
#include <vector>

#include "skrull/schedule/plan.h"

namespace skrull::test {

/// `sequences` ascending in length; loads are `flops`. The result may break bucket_tokens.
inline std::optional<PlannedMicroBatch> printed_dacp(std::span<const std::int64_t> lengths,
                                                     std::span<const double> flops, int ranks, std::int64_t bucket,
                                                     std::span<const std::int64_t> sequences) {
  const auto n = static_cast<std::size_t>(ranks);
  std::vector<double> room(n, static_cast<double>(bucket));
  std::vector<double> load(n);
  std::vector<int> everyone(n);
  std::iota(everyone.begin(), everyone.end(), 0);
  PlannedMicroBatch planned;
  planned.local.resize(n);
  const auto length = [&](std::int64_t k) { return static_cast<double>(lengths[static_cast<std::size_t>(k)]); };
  const auto work = [&](std::int64_t k) { return flops[static_cast<std::size_t>(k)]; };
  const auto smallest = [](const std::vector<double>& of) {
    return static_cast<std::size_t>(std::min_element(of.begin(), of.end()) - of.begin());
  };
  const auto put_local = [&](std::int64_t k, std::size_t t) {
    if (room[t] < length(k)) return false;
    room[t] -= length(k);
    load[t] += work(k);
    planned.local[t].push_back(k);
    return true;
  };
  for (std::size_t i = 0; i < sequences.size();) {
    const std::int64_t k = sequences[i];
    const auto roomiest = static_cast<std::size_t>(std::max_element(room.begin(), room.end()) - room.begin());
    if (put_local(k, smallest(load)) || put_local(k, roomiest)) {
      ++i;
      continue;
    }
    const std::size_t t = smallest(room);
    if (room[t] >= length(k) / ranks) {
      for (std::size_t j = 0; j < n; ++j) {
        room[j] -= length(k) / ranks;
        load[j] += work(k) / ranks;
      }
      planned.distributed.push_back({k, everyone});
      ++i;
      continue;
    }
    if (planned.local[t].empty()) return std::nullopt;
    const std::int64_t first = planned.local[t].front();
    planned.local[t].erase(planned.local[t].begin());
    room[t] += length(first) - length(first) / ranks;
    load[t] += work(first) / ranks - work(first);
    planned.distributed.push_back({first, everyone});
  }
  return planned;
}

}  // namespace skrull::test
