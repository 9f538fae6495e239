#include "rank_symmetry.h"

#include "skrull/core/error.h"

namespace skrull {

RankSet RankSymmetry::image(const Permutation& permutation, RankSet ranks) {
  unsigned mapped = 0;
  for (std::size_t rank = 0; rank < permutation.size(); ++rank) {
    if ((ranks >> rank & 1U) != 0) mapped |= 1U << permutation[rank];
  }
  return static_cast<RankSet>(mapped);
}

RankSymmetry::RankSymmetry(const Topology& topology, int replica) {
  const auto ranks = static_cast<std::size_t>(topology.context_parallel);
  require(ranks <= most_ranks, "rank symmetry: {} ranks, at most {} expected", ranks, most_ranks);
  std::array<int, most_ranks> node{};
  for (std::size_t rank = 0; rank < ranks; ++rank) node[rank] = topology.node_of(replica, static_cast<int>(rank));
  // Two bits of a code per rank: all maps of ranks to ranks.
  for (unsigned code = 0; code < 1U << 2 * ranks; ++code) {
    Permutation map{};
    for (std::size_t rank = 0; rank < ranks; ++rank) map[rank] = static_cast<std::uint8_t>(code >> 2 * rank & 3U);
    bool allowed = true;
    for (std::size_t a = 0; a < ranks; ++a) {
      allowed &= map[a] < ranks;
      for (std::size_t b = 0; b < a; ++b) {
        allowed &= map[a] != map[b] && (node[a] == node[b]) == (node[map[a]] == node[map[b]]);
      }
    }
    if (allowed) permutations_.push_back(map);
  }
  for (std::size_t index = 0; index < permutations_.size(); ++index) {
    for (unsigned set = 0; set < set_count; ++set) {
      const auto ranks_of_set = static_cast<RankSet>(set);
      const RankSet mapped = image(permutations_[index], ranks_of_set);
      if (mapped == ranks_of_set) fixing_[set] |= Group{1} << index;
      if (mapped < ranks_of_set) lowering_[set] |= Group{1} << index;
    }
  }
}

}  // namespace skrull
