#include "policies.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "skrull/core/error.h"
#include "skrull/core/text.h"

namespace skrull {
namespace {

struct Policy {
  std::string_view name;
  ReplicaMicroBatches (*plan)(const PolicyInput&);
};

/// Every policy, the default first.
constexpr std::array policies{
    Policy{"skrull", skrull_policy},
    Policy{"packed", packed_policy},
    Policy{"packed-balanced", packed_balanced_policy},
    Policy{"deepspeed", deepspeed_policy},
    Policy{"sorted", sorted_policy},
    Policy{"skrull-paper", skrull_paper_policy},
    Policy{"round-robin", round_robin_policy},
};

const Policy& find_policy(const std::string& name) {
  const auto found =
      std::find_if(policies.begin(), policies.end(), [&](const Policy& policy) { return policy.name == name; });
  if (found != policies.end()) return *found;
  const std::string near = nearest(name, policy_names());
  throw_invalid_input("unknown scheduling policy \"{}\"{}; known: {}", name,
                      near.empty() ? "" : fmt::format(" (did you mean \"{}\"?)", near),
                      fmt::join(policy_names(), ", "));
}

}  // namespace

const std::vector<std::string>& policy_names() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> all;
    all.reserve(policies.size());
    for (const Policy& policy : policies) all.emplace_back(policy.name);
    return all;
  }();
  return names;
}

void check_schedule_request(const ScheduleRequest& request) {
  const Topology& topology = request.topology;
  if (topology.data_parallel < 1 || topology.context_parallel < 1 || topology.ranks_per_node < 1) {
    throw_invalid_input(
        "topology of {} data-parallel x {} context-parallel ranks, {} per node: each must be at least 1",
        topology.data_parallel, topology.context_parallel, topology.ranks_per_node);
  }
  if (request.bucket_tokens < 1) throw_invalid_input("bucket_tokens is {}: must be at least 1", request.bucket_tokens);
  for (std::size_t i = 0; i < request.lengths.size(); ++i) {
    const std::int64_t length = request.lengths[i];
    if (length < 1) throw_invalid_input("sequence {} has {} tokens: must be at least 1", i, length);
    const std::int64_t least = largest_zigzag_shard(length, topology.context_parallel);
    if (least > request.bucket_tokens) {
      throw_invalid_input(
          "sequence {} has {} tokens, {} on each of {} context-parallel ranks, more than bucket_tokens {}: set "
          "bucket_tokens to at least {} or use more context-parallel ranks, at least {}",
          i, length, least, topology.context_parallel, request.bucket_tokens, least,
          smallest_ring(length, request.bucket_tokens));
    }
  }
}

Plan make_plan(const std::string& policy, const ScheduleRequest& request, const CostModel& cost,
               const SearchOptions& search) {
  const Policy& chosen = find_policy(policy);
  check_schedule_request(request);
  Plan plan{policy, request.topology, request.bucket_tokens, request.lengths, chosen.plan({request, cost, search})};
  even_out(plan);
  return plan;
}

}  // namespace skrull
