// Policy "skrull-paper": GDS and DACP as printed in the Skrull paper (arXiv 2505.19609), except that a roll-back is
// accounted on every rank, so that memory never breaks.

#include "gds.h"

namespace skrull {

ReplicaMicroBatches skrull_paper_policy(const PolicyInput& input) {
  return global_data_schedule(input, LocalRule::least_loaded);
}

}  // namespace skrull
