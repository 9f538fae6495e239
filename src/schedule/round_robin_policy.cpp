// Policy "round-robin": the Skrull paper's ablation of balancing. As "skrull-paper", but local sequences are dealt to
// the ranks in turn, whatever they already compute.

#include "gds.h"

namespace skrull {

ReplicaMicroBatches round_robin_policy(const PolicyInput& input) {
  return global_data_schedule(input, LocalRule::cyclic);
}

}  // namespace skrull
