#pragma once
// What a plan loses when the hardware profile it was made with is wrong.

#include <cstdint>
#include <string>
#include <vector>

#include "skrull/schedule/scheduler.h"

namespace skrull {

/// Factors by which a profile errs; 1 everywhere is the profile itself.
struct ProfileError {
  std::string name;
  double attention_rate = 1.0;
  double network_rate = 1.0;  ///< bandwidths times this, latencies divided by it
  double fixed_costs = 1.0;
};

/// Attention 0.65 and 1.3 times as fast, a network a third as fast, fixed costs 5 times as large.
const std::vector<ProfileError>& usual_profile_errors();

/// The profile as it would be with this error.
HardwareProfile with_error(const HardwareProfile& profile, const ProfileError& error);

struct ProfileErrorLoss {
  std::string name;
  double mean_loss = 0.0;   ///< schedule time of the plan made with the wrong profile over that of the right one, - 1
  double worst_loss = 0.0;  ///< of one batch
};

/// Plans every batch by `policy` with `cost` and with each wrong profile; all plans are judged by `cost`. A loss may be
/// negative where a search ends in a better place by chance. `batches` must not be empty.
std::vector<ProfileErrorLoss> losses_by_profile_error(const std::string& policy,
                                                      const std::vector<ProfileError>& errors,
                                                      const std::vector<std::vector<std::int64_t>>& batches,
                                                      const Topology& topology, std::int64_t bucket_tokens,
                                                      const CostModel& cost, const SearchOptions& search = {});

}  // namespace skrull
