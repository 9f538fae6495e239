// skrull bench schedule: how good and how fast the policies are, on files of lengths or drawn ones.

#include <cstdio>

#include "cli_parse.h"
#include "commands.h"
#include "plan_report.h"
#include "skrull/core/error.h"
#include "skrull/core/json.h"
#include "skrull/core/log.h"
#include "skrull/data/length_file.h"
#include "skrull/model/named_models.h"
#include "skrull/model/qwen2_config.h"
#include "skrull/schedule/comparison.h"
#include "skrull/schedule/length_generator.h"
#include "skrull/schedule/robustness.h"

namespace skrull::cli {
namespace {

struct ScheduleBenchArguments {
  std::vector<std::string> lengths;
  std::string model = "0.5b";
  std::string hardware = "h100_4x8";
  Topology topology{4, 8, 8};
  std::int64_t bucket_tokens = 26000;
  std::int64_t global_batch_size = 256;
  std::int64_t batches = 0;
  std::string policies = "all";
  SearchOptions search;
  std::int64_t large = 4096;
  bool wrong_profiles = false;
  bool json = false;
};

/// Several global batches on some ranks.
struct Case {
  std::string name;
  Topology topology;
  std::vector<std::vector<std::int64_t>> batches;
};

Case case_of_file(const std::string& file, const ScheduleBenchArguments& arguments) {
  Case one{file, arguments.topology, {}};
  for (LengthBatch& batch : read_length_file(file, arguments.global_batch_size)) {
    if (arguments.batches > 0 && static_cast<std::int64_t>(one.batches.size()) == arguments.batches) break;
    one.batches.push_back(std::move(batch.lengths));
  }
  return one;
}

std::vector<Case> cases_of(const ScheduleBenchArguments& arguments) {
  constexpr std::uint64_t seed = 1;
  constexpr std::int64_t drawn_batches = 10;
  const std::int64_t longest =
      std::min<std::int64_t>(131072, arguments.bucket_tokens * arguments.topology.context_parallel);
  std::vector<Case> cases;
  for (const std::string& file : arguments.lengths) cases.push_back(case_of_file(file, arguments));
  if (cases.empty()) {
    const std::int64_t count = arguments.batches > 0 ? arguments.batches : drawn_batches;
    for (const char* name : {"wikipedia", "lmsys", "chatqa2"}) {
      cases.push_back(
          {name, arguments.topology,
           draw_length_batches(find_length_distribution(name), count, arguments.global_batch_size, longest, seed)});
    }
  }
  if (arguments.large > 0) {
    const Topology large{128, 8, 8};
    cases.push_back({fmt::format("long-tail, {} sequences on 128 x 8 ranks", arguments.large), large,
                     draw_length_batches(find_length_distribution("long-tail"), 3, arguments.large,
                                         std::min<std::int64_t>(131072, arguments.bucket_tokens * 8), seed)});
  }
  return cases;
}

OrderedJson bench_policies(const Case& one, const std::vector<std::string>& policies,
                           const ScheduleBenchArguments& arguments, const CostModel& cost) {
  // The first plan of a program also pays for its memory and caches.
  make_plan(policies.front(), {one.batches.front(), one.topology, arguments.bucket_tokens}, cost, arguments.search);
  const auto summaries =
      compare_policies(policies, one.batches, one.topology, arguments.bucket_tokens, cost, arguments.search);
  OrderedJson rows = OrderedJson::array();
  for (const PolicySummary& policy : summaries) {
    log::info("  {:<16} step {:9.4f} s, gap {:7.2f}% (worst {:8.2f}%), scheduling {:8.2f} ms (longest {:8.2f})",
              policy.policy, policy.schedule_seconds, 100.0 * policy.mean_gap, 100.0 * policy.worst_gap,
              1e3 * policy.median_scheduling, 1e3 * policy.longest_scheduling);
    rows.push_back({{"policy", policy.policy},
                    {"schedule_seconds", policy.schedule_seconds},
                    {"gap", policy.mean_gap},
                    {"worst_gap", policy.worst_gap},
                    {"speedup_over", speedups_over(summaries, policy)},
                    {"scheduling_ms", 1e3 * policy.median_scheduling},
                    {"longest_scheduling_ms", 1e3 * policy.longest_scheduling}});
  }
  return rows;
}

OrderedJson bench_wrong_profiles(const Case& one, const std::string& policy, const ScheduleBenchArguments& arguments,
                                 const CostModel& cost) {
  OrderedJson rows = OrderedJson::array();
  const auto losses = losses_by_profile_error(policy, usual_profile_errors(), one.batches, one.topology,
                                              arguments.bucket_tokens, cost, arguments.search);
  for (const ProfileErrorLoss& loss : losses) {
    log::info("  {} with a wrong profile, {:<18} loses {:6.2f}% (worst {:6.2f}%)", policy, loss.name,
              100.0 * loss.mean_loss, 100.0 * loss.worst_loss);
    rows.push_back({{"error", loss.name}, {"loss", loss.mean_loss}, {"worst_loss", loss.worst_loss}});
  }
  return rows;
}

void add_options(CLI::App& app, ScheduleBenchArguments& arguments) {
  app.option_defaults()->always_capture_default();
  const auto ranks = CLI::Range(1, 1 << 20);
  const auto positive = CLI::Range(std::int64_t{1}, std::int64_t{1} << 40);
  const auto count = CLI::Range(std::int64_t{0}, std::int64_t{1} << 40);
  app.add_option("--lengths", arguments.lengths,
                 "files of lengths as for skrull plan; without them batches are drawn like three known data sets");
  app.add_option("--model", arguments.model,
                 "the shape of a Qwen2.5 model (0.5b, 1.5b, 3b, 7b, 14b, 32b, 72b), or a folder with a config.json");
  app.add_option("--hardware", arguments.hardware, "name of a profile that ships, or a file");
  app.add_option("--data-parallel", arguments.topology.data_parallel, "replicas")->check(ranks);
  app.add_option("--context-parallel", arguments.topology.context_parallel, "ranks of a replica")->check(ranks);
  app.add_option("--ranks-per-node", arguments.topology.ranks_per_node, "ranks that share the fast links")
      ->check(ranks);
  app.add_option("--bucket-tokens", arguments.bucket_tokens, "tokens of a rank in a micro-batch")->check(positive);
  app.add_option("--global-batch-size", arguments.global_batch_size, "of drawn batches and of one length a line")
      ->check(positive);
  app.add_option("--batches", arguments.batches, "of each file, or to draw; 0: all of a file, 10 drawn")->check(count);
  app.add_option("--policies", arguments.policies, "all, or names separated by commas");
  app.add_option("--search-moves", arguments.search.moves, "as scheduler.search_moves; -1: automatic")
      ->check(CLI::Range(std::int64_t{-1}, std::int64_t{1} << 40));
  app.add_option("--threads", arguments.search.threads, "as scheduler.threads")->check(ranks);
  app.add_option("--large", arguments.large, "sequences of the case on 128 x 8 ranks; 0: leave it out")->check(count);
  app.add_flag("--wrong-profiles", arguments.wrong_profiles,
               "also: what the first policy's plans lose when they are made with a wrong profile");
  app.add_flag("--json", arguments.json, "print the result as one JSON object");
}

}  // namespace

int bench_schedule(const Arguments& arguments) {
  CLI::App app("Measures the scheduling policies: gap to the lower bound, predicted speed-ups, time to plan.",
               "skrull bench schedule");
  ScheduleBenchArguments parsed;
  add_options(app, parsed);
  if (!parse(app, arguments)) return static_cast<int>(ExitCode::done);
  const std::vector<std::string> policies = parse_policies(parsed.policies);
  const CostModel cost(find_model(parsed.model).shape(), find_hardware_profile(parsed.hardware));
  OrderedJson cases = OrderedJson::array();
  for (const Case& one : cases_of(parsed)) {
    log::info("{}: {} batches of {} sequences, {} x {} ranks", one.name, one.batches.size(), one.batches.front().size(),
              one.topology.data_parallel, one.topology.context_parallel);
    OrderedJson result = {{"case", one.name},
                          {"batches", one.batches.size()},
                          {"data_parallel", one.topology.data_parallel},
                          {"context_parallel", one.topology.context_parallel},
                          {"policies", bench_policies(one, policies, parsed, cost)}};
    if (parsed.wrong_profiles) {
      result["wrong_profiles"] = bench_wrong_profiles(one, policies.front(), parsed, cost);
    }
    cases.push_back(std::move(result));
  }
  const OrderedJson result = {{"bench", "schedule"},
                              {"model", parsed.model},
                              {"hardware_profile", cost.profile().name},
                              {"bucket_tokens", parsed.bucket_tokens},
                              {"search_moves", parsed.search.moves},
                              {"cases", std::move(cases)}};
  if (parsed.json) std::printf("%s\n", result.dump().c_str());
  return static_cast<int>(ExitCode::done);
}

}  // namespace skrull::cli
