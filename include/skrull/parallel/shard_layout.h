#pragma once
// Which elements of a block a rank owns, and how the parameters lie in them. Pure: depends on the table and the number
// of ranks alone.

#include <cstdint>
#include <vector>

#include "skrull/comm/even_split.h"
#include "skrull/model/parameter_table.h"

namespace skrull {

/// How the training state lies on the ranks: ZeRO's stages (Rajbhandari et al. 2020, section 5). Stage 0 keeps all of
/// it on every rank; each further stage divides one more kind of it, block by block, by owned_part().
struct Sharding {
  int stage = 0;
  int ranks = 1;
  int rank = 0;

  bool of_optimizer() const { return stage >= 1; }   ///< fp32 master parameters and moments
  bool of_gradients() const { return stage >= 2; }   ///< the sums; a block is whole while its backward runs
  bool of_parameters() const { return stage >= 3; }  ///< what the model reads; a block is whole while it is used
};

/// The sharding of `zero_stage` over `ranks`: one rank has nothing to divide and keeps stage 0. Throws RunFailure for a
/// stage outside 0 to 3 or a rank that is none of the ranks.
Sharding make_sharding(int zero_stage, int ranks, int rank);

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
