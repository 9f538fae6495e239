#pragma once
// Which ranks of a micro-batch can change places. For groups of few ranks: sets of ranks are bits, and so are groups of
// permutations.

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "skrull/schedule/plan.h"

namespace skrull {

/// Bit j: CP rank j.
using RankSet = std::uint8_t;

/// The permutations of a replica's CP ranks that map nodes to nodes. Under them every set of ranks keeps its link; the
/// order of a ring's positions changes, so only costs without regard to positions stay the same.
class RankSymmetry {
 public:
  static constexpr int most_ranks = 4;
  static constexpr int set_count = 1 << most_ranks;
  /// Bit i: permutation i.
  using Group = std::uint32_t;
  using Permutation = std::array<std::uint8_t, most_ranks>;

  /// The ranks to which a permutation maps these.
  static RankSet image(const Permutation& permutation, RankSet ranks);

  RankSymmetry(const Topology& topology, int replica);

  std::span<const Permutation> permutations() const { return permutations_; }
  Group all() const { return static_cast<Group>((std::uint64_t{1} << permutations_.size()) - 1); }
  /// Those of `group` that map `ranks` onto itself.
  Group fixing(Group group, RankSet ranks) const { return group & fixing_[ranks]; }
  /// Whether no permutation of `group` maps `ranks` to a smaller set: one such set stands for all.
  bool is_first(Group group, RankSet ranks) const { return (group & lowering_[ranks]) == 0; }

 private:
  std::vector<Permutation> permutations_;
  std::array<Group, set_count> fixing_{};    ///< permutations that map the set onto itself
  std::array<Group, set_count> lowering_{};  ///< permutations that map it to a smaller set
};

}  // namespace skrull
