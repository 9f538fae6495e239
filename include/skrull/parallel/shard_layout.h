#pragma once
// Which elements of a block a rank owns, and how the parameters lie in them. Pure: depends on the table and the number
// of ranks alone.

#include <cstdint>
#include <vector>

#include "skrull/comm/even_split.h"
#include "skrull/model/parameter_table.h"

namespace skrull {

/// Elements of the block's flat buffer that rank `rank` of `ranks` owns: an even part, which may begin and end in the
/// middle of a parameter.
Part owned_part(const ParameterTable& table, int block, int ranks, int rank);

/// Neighbouring elements whose parameters agree on weight decay.
struct DecayRun {
  Part part;  ///< elements of the block's flat buffer
  bool weight_decay = true;
};

/// The elements of `part` of a block as the fewest runs, in order. Throws RunFailure when parameters leave a gap.
std::vector<DecayRun> decay_runs(const ParameterTable& table, int block, Part part);

}  // namespace skrull
