#include "plan_report.h"

#include <algorithm>
#include <numeric>

#include "skrull/core/log.h"
#include "skrull/core/text.h"

namespace skrull::cli {
namespace {

/// Beyond this the ranks are listed in the JSON alone.
constexpr std::size_t most_rank_lines = 64;

std::int64_t tokens_of(const Plan& plan) {
  return std::accumulate(plan.lengths.begin(), plan.lengths.end(), std::int64_t{0});
}

/// What one rank does over all micro-batches.
struct RankShare {
  std::int64_t micro_batches = 0;  ///< in which it holds tokens
  std::int64_t local = 0;          ///< whole sequences
  std::int64_t ring = 0;           ///< shards of sequences
  std::int64_t tokens = 0;
  double busy_seconds = 0.0;
};

RankShare share_of(const JudgedPlan& judged, std::size_t replica, std::size_t rank) {
  RankShare share;
  const auto& micro_batches = judged.file.plan.micro_batches[replica];
  for (std::size_t k = 0; k < micro_batches.size(); ++k) {
    const RankLoad& load = judged.cost.rank_loads[replica][k][rank];
    share.local += static_cast<std::int64_t>(micro_batches[k].local[rank].size());
    share.ring += std::count_if(
        micro_batches[k].distributed.begin(), micro_batches[k].distributed.end(), [&](const DistributedSequence& one) {
          return std::find(one.ranks.begin(), one.ranks.end(), static_cast<int>(rank)) != one.ranks.end();
        });
    share.tokens += load.tokens;
    share.micro_batches += load.tokens > 0 ? 1 : 0;
    if (!is_empty(micro_batches[k])) share.busy_seconds += load.time.total;
  }
  return share;
}

std::int64_t used_micro_batches(const std::vector<PlannedMicroBatch>& replica) {
  return std::count_if(replica.begin(), replica.end(),
                       [](const PlannedMicroBatch& micro_batch) { return !is_empty(micro_batch); });
}

void report_ranks(const JudgedPlan& judged, const PlanningSetup& setup) {
  const Plan& plan = judged.file.plan;
  std::size_t lines = 0;
  for (std::size_t replica = 0; replica < plan.micro_batches.size(); ++replica) {
    if (lines >= most_rank_lines) {
      log::info("  ... {} more replicas; --json lists every rank", plan.micro_batches.size() - replica);
      return;
    }
    log::info("  replica {}: {} micro-batches, {:.4f} s", replica, used_micro_batches(plan.micro_batches[replica]),
              judged.cost.replica_seconds[replica]);
    for (std::size_t rank = 0; rank < judged.peak_tokens[replica].size(); ++rank, ++lines) {
      const RankShare share = share_of(judged, replica, rank);
      const std::int64_t peak = judged.peak_tokens[replica][rank];
      log::info(
          "    rank {:>3}: {:>3} micro-batches, {:>4} whole sequences, {:>4} shards, {:>9} tokens, at most {:>7} at "
          "once, {:>9}, {:5.1f}% busy",
          replica * judged.peak_tokens[replica].size() + rank, share.micro_batches, share.local, share.ring,
          format_count(share.tokens), format_count(peak), format_bytes(setup.memory->bytes(peak)),
          100.0 * share.busy_seconds / judged.cost.schedule_seconds);
    }
  }
}

/// Over the memory of a rank with these tokens: what to say when it is more than the device has.
void warn_about_memory(std::int64_t bytes, const PlanningSetup& setup) {
  if (bytes <= setup.device_memory_bytes) return;
  log::warning("a rank needs {}, its device has {}: lower bucket_tokens, or raise zero_stage", format_bytes(bytes),
               format_bytes(setup.device_memory_bytes));
}

void report_setup(const PlanningSetup& setup) {
  const Topology& topology = setup.topology;
  log::info("ranks: {} (data parallel {} x context parallel {}), {} per node; hardware profile {}",
            topology.data_parallel * topology.context_parallel, topology.data_parallel, topology.context_parallel,
            topology.ranks_per_node, setup.cost->profile().name);
  log::info("memory of a rank: {} + {} per token; at most {} tokens in a micro-batch{}",
            format_bytes(setup.memory->fixed().total()), format_bytes(setup.memory->per_token().total()),
            format_count(setup.bucket_tokens), setup.automatic_bucket ? " (auto)" : "");
}

OrderedJson ranks_to_json(const JudgedPlan& judged, const PlanningSetup& setup) {
  OrderedJson ranks = OrderedJson::array();
  for (std::size_t replica = 0; replica < judged.peak_tokens.size(); ++replica) {
    for (std::size_t rank = 0; rank < judged.peak_tokens[replica].size(); ++rank) {
      const RankShare share = share_of(judged, replica, rank);
      const std::int64_t peak = judged.peak_tokens[replica][rank];
      ranks.push_back({{"replica", replica},
                       {"rank", rank},
                       {"micro_batches", share.micro_batches},
                       {"local_sequences", share.local},
                       {"ring_sequences", share.ring},
                       {"tokens", share.tokens},
                       {"peak_tokens", peak},
                       {"memory_bytes", setup.memory->bytes(peak)},
                       {"busy_seconds", share.busy_seconds}});
    }
  }
  return ranks;
}

}  // namespace

void report_plan(const JudgedPlan& judged, const PlanningSetup& setup) {
  const Plan& plan = judged.file.plan;
  const std::int64_t tokens = tokens_of(plan);
  report_setup(setup);
  log::info("policy {}: {} sequences, {} tokens, longest {}; {} sequences over rings", plan.policy, plan.lengths.size(),
            format_count(tokens), format_count(*std::max_element(plan.lengths.begin(), plan.lengths.end())),
            judged.cost.distributed_sequences);
  report_ranks(judged, setup);
  log::info("predicted step: {:.4f} s, {} tokens/s (schedule {:.4f} s, gradient synchronisation {:.4f} s)",
            judged.cost.step_seconds,
            format_count(static_cast<std::int64_t>(static_cast<double>(tokens) / judged.cost.step_seconds)),
            judged.cost.schedule_seconds, judged.cost.step_seconds - judged.cost.schedule_seconds);
  log::info("no schedule is faster than {:.4f} s ({}): the gap is {:.2f}%", judged.bound.seconds,
            name_of(judged.bound.reason), 100.0 * (judged.cost.schedule_seconds / judged.bound.seconds - 1.0));
  if (judged.cost.distributed_sequences > 0) {
    log::info("{:.1f}% of the rings' transfer time is hidden behind kernels", 100.0 * judged.cost.hidden_share);
  } else {
    log::info("no sequence is sharded: ranks send nothing to each other within a layer");
  }
  log::info("scheduling took {:.2f} ms", 1e3 * judged.file.scheduling_seconds);
  warn_about_memory(judged.peak_bytes(*setup.memory), setup);
}

OrderedJson setup_to_json(const PlanningSetup& setup) {
  const ModelShape shape = setup.model.shape();
  OrderedJson model = OrderedJson::object();
  for (const NamedModelSize& size : model_sizes) model[size.name] = shape.*size.member;
  OrderedJson topology = OrderedJson::object();
  for (const NamedTopologySize& size : topology_sizes) topology[size.name] = setup.topology.*size.member;
  return {{"model", std::move(model)},
          {"topology", std::move(topology)},
          {"bucket_tokens", setup.bucket_tokens},
          {"hardware_profile", setup.cost->profile().name},
          {"memory",
           {{"fixed_bytes", setup.memory->fixed().total()},
            {"bytes_per_token", setup.memory->per_token().total()},
            {"device_bytes", setup.device_memory_bytes}}}};
}

OrderedJson plan_to_result(const JudgedPlan& judged, const PlanningSetup& setup) {
  const Plan& plan = judged.file.plan;
  const std::int64_t tokens = tokens_of(plan);
  OrderedJson result = {{"command", "plan"}, {"policy", plan.policy}};
  result.update(setup_to_json(setup));
  std::vector<std::int64_t> micro_batches;
  for (const auto& replica : plan.micro_batches) micro_batches.push_back(used_micro_batches(replica));
  result["sequences"] = plan.lengths.size();
  result["tokens"] = tokens;
  result["schedule_seconds"] = judged.cost.schedule_seconds;
  result["step_seconds"] = judged.cost.step_seconds;
  result["tokens_per_second"] = static_cast<double>(tokens) / judged.cost.step_seconds;
  result["bound_seconds"] = judged.bound.seconds;
  result["bound_reason"] = name_of(judged.bound.reason);
  result["gap"] = judged.cost.schedule_seconds / judged.bound.seconds - 1.0;
  result["hidden_share"] = judged.cost.hidden_share;
  result["distributed_sequences"] = judged.cost.distributed_sequences;
  result["micro_batches"] = micro_batches;
  result["replica_seconds"] = judged.cost.replica_seconds;
  result["peak_tokens"] = judged.cost.peak_tokens;
  result["peak_memory_bytes"] = judged.peak_bytes(*setup.memory);
  result["scheduling_seconds"] = judged.file.scheduling_seconds;
  result["ranks"] = ranks_to_json(judged, setup);
  result["plan"] = OrderedJson::parse(plan_to_json(judged.file));
  return result;
}

void report_comparison(const std::vector<PolicySummary>& policies, const PlanningSetup& setup, double tokens) {
  report_setup(setup);
  log::info("{:<16} {:>10} {:>12} {:>9} {:>9} {:>10} {:>8} {:>9} {:>12}", "policy", "step", "tokens/s", "speed-up",
            "mean gap", "worst gap", "hidden", "memory", "scheduling");
  const auto slowest = std::max_element(policies.begin(), policies.end(), [](const auto& a, const auto& b) {
    return a.schedule_seconds < b.schedule_seconds;
  });
  for (const PolicySummary& one : policies) {
    log::info("{:<16} {:>8.4f} s {:>12} {:>8.2f}x {:>8.2f}% {:>9.2f}% {:>7.1f}% {:>9} {:>9.2f} ms", one.policy,
              one.step_seconds, format_count(static_cast<std::int64_t>(tokens / one.step_seconds)),
              slowest->schedule_seconds / one.schedule_seconds, 100.0 * one.mean_gap, 100.0 * one.worst_gap,
              100.0 * one.hidden_share, format_bytes(setup.memory->bytes(one.peak_tokens)),
              1e3 * one.scheduling_seconds);
  }
  log::info("speed-up over {}, of schedules without gradient synchronisation; means over the batches", slowest->policy);
}

OrderedJson speedups_over(const std::vector<PolicySummary>& policies, const PolicySummary& one) {
  OrderedJson speedups = OrderedJson::object();
  for (const PolicySummary& other : policies) speedups[other.policy] = other.schedule_seconds / one.schedule_seconds;
  return speedups;
}

OrderedJson comparison_to_result(const std::vector<PolicySummary>& policies, const PlanningSetup& setup,
                                 double tokens) {
  OrderedJson rows = OrderedJson::array();
  for (const PolicySummary& one : policies) {
    rows.push_back({{"policy", one.policy},
                    {"schedule_seconds", one.schedule_seconds},
                    {"step_seconds", one.step_seconds},
                    {"tokens_per_second", tokens / one.step_seconds},
                    {"speedup_over", speedups_over(policies, one)},
                    {"gap", one.mean_gap},
                    {"worst_gap", one.worst_gap},
                    {"hidden_share", one.hidden_share},
                    {"micro_batches", one.micro_batches},
                    {"distributed_share", one.distributed_share},
                    {"peak_tokens", one.peak_tokens},
                    {"peak_memory_bytes", setup.memory->bytes(one.peak_tokens)},
                    {"scheduling_seconds", one.scheduling_seconds},
                    {"longest_scheduling_seconds", one.longest_scheduling}});
  }
  OrderedJson result = {{"command", "plan"}, {"compare", true}};
  result.update(setup_to_json(setup));
  result["tokens_per_batch"] = tokens;
  result["policies"] = std::move(rows);
  return result;
}

}  // namespace skrull::cli
