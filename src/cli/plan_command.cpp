// skrull plan: what schedule, memory and speed a cluster would have, before there is one.

#include <cstdio>

#include "cli_parse.h"
#include "commands.h"
#include "memory_report.h"
#include "plan_report.h"
#include "skrull/config/config_parser.h"
#include "skrull/core/error.h"
#include "skrull/core/file.h"
#include "skrull/core/log.h"
#include "skrull/schedule/length_generator.h"
#include "skrull/schedule/simulator.h"
#include "skrull/schedule/timeline.h"

namespace skrull::cli {
namespace {

constexpr std::int64_t most_batches = 1'000'000'000;

struct PlanArguments {
  int ranks = 0;
  std::string lengths;
  std::string draw;
  std::int64_t batch = 0;
  std::string policy;
  std::string hardware;
  std::string read;
  std::string output;
  std::string timeline;
  std::string compare;
  std::int64_t batches = 1;
  bool memory = false;
  bool json = false;
};

/// "wikipedia: short articles ..; lmsys: .."
std::string describe_length_distributions() {
  std::vector<std::string> described;
  for (const LengthDistribution& one : length_distributions()) {
    described.push_back(fmt::format("{}: {}", one.name, one.description));
  }
  return fmt::format("{}", fmt::join(described, "; "));
}

void add_options(CLI::App& app, PlanArguments& arguments) {
  app.footer(
      "Of the config, model_name_or_path is needed (a folder with config.json will do); context_parallel_size, "
      "ranks_per_node,\nzero_stage, gradient_checkpointing, compute_dtype, bucket_tokens, global_batch_size, "
      "hardware_profile and scheduler.* are read where they are "
      "given, and dataset\nwithout --lengths and --draw. key=value and --key value override them as in skrull train.");
  app.add_option("--ranks", arguments.ranks,
                 "ranks of the cluster, a multiple of context_parallel_size [one replica: context_parallel_size]")
      ->check(CLI::Range(1, 1 << 20));
  auto* lengths =
      app.add_option("--lengths", arguments.lengths,
                     "file of sequence lengths in place of the dataset: a line is one global batch, or every line one "
                     "length and global_batch_size of them a batch");
  app.add_option("--draw", arguments.draw,
                 "in place of a dataset: lengths drawn like those of a known one, cut at cutoff_len. " +
                     describe_length_distributions())
      ->excludes(lengths);
  app.add_option("--batch", arguments.batch, "which global batch, from 0; of a dataset: the training step [0]")
      ->check(CLI::Range(std::int64_t{0}, most_batches));
  app.add_option("--policy", arguments.policy, "as scheduler.policy=..");
  app.add_option("--hardware", arguments.hardware, "as hardware_profile=..: a shipped name or a file");
  auto* output = app.add_option("--output", arguments.output, "write the plan to this file (skrull-plan/1)");
  auto* timeline = app.add_option("--timeline", arguments.timeline,
                                  "draw the simulated step: FILE.svg, or FILE.json for Perfetto (ui.perfetto.dev)");
  auto* read = app.add_option("--read", arguments.read, "judge the plan of this file in place of making one");
  auto* compare =
      app.add_option("--compare", arguments.compare, "policies side by side: all, or names separated by commas");
  app.add_option("--batches", arguments.batches, "global batches to compare over, from --batch on [1]")
      ->check(CLI::Range(std::int64_t{1}, most_batches))
      ->needs(compare);
  for (CLI::Option* single : {output, timeline, read}) compare->excludes(single);
  auto* memory = app.add_flag("--memory", arguments.memory,
                              "instead of a plan: the memory of a rank by category, for every zero_stage and "
                              "gradient_checkpointing; needs no lengths");
  for (CLI::Option* other : {output, timeline, read, compare, lengths}) memory->excludes(other);
  app.add_flag("--json", arguments.json, "print the result as one JSON object");
}

bool ends_with_either(const std::string& file) {
  return file.ends_with(".svg") || file.ends_with(".json");
}

void draw_timeline(const std::string& file, const Plan& plan, const CostModel& cost, int zero_stage) {
  SimulationOptions options;
  options.zero_stage = zero_stage;
  options.record_spans = true;
  const Simulation simulation = simulate_step(plan, cost, options);
  write_file_atomically(file,
                        file.ends_with(".svg") ? timeline_svg(simulation, plan) : timeline_trace(simulation, plan));
  log::info("simulated step: {:.4f} s, drawn in {}", simulation.step_seconds, file);
}

std::vector<LengthBatch> find_batches(const PlanArguments& arguments, const TrainConfig& config,
                                      const PlanningSetup& setup) {
  if (!arguments.lengths.empty()) {
    return batches_of_file(arguments.lengths, setup, arguments.batch, arguments.batches);
  }
  if (!arguments.draw.empty()) {
    return drawn_batches(arguments.draw, config, setup, arguments.batch, arguments.batches);
  }
  if (!config.dataset.empty()) return batches_of_dataset(config, setup, arguments.batch, arguments.batches);
  throw_invalid_input("skrull plan: no lengths to plan; give dataset in the config, --lengths FILE or --draw NAME");
}

OrderedJson compare(const PlanArguments& arguments, const TrainConfig& config, const PlanningSetup& setup) {
  std::vector<std::vector<std::int64_t>> lengths;
  double tokens = 0.0;
  for (const LengthBatch& batch : find_batches(arguments, config, setup)) {
    check_batch(batch, setup);
    for (const std::int64_t length : batch.lengths) tokens += static_cast<double>(length);
    lengths.push_back(batch.lengths);
  }
  tokens /= static_cast<double>(lengths.size());
  const auto summaries = compare_policies(parse_policies(arguments.compare), lengths, setup.topology,
                                          setup.bucket_tokens, *setup.cost, setup.search);
  report_comparison(summaries, setup, tokens);
  OrderedJson result = comparison_to_result(summaries, setup, tokens);
  result["batches"] = lengths.size();
  return result;
}

/// The plan of --read; model and hardware are the config's, the rest is the plan's.
JudgedPlan read_and_judge(const PlanArguments& arguments, PlanningSetup& setup) {
  PlanFile file = read_plan(arguments.read);
  if (file.model != setup.model.shape()) {
    throw_invalid_input("{}: model: the plan is for another model than the config's", arguments.read);
  }
  setup.topology = file.plan.topology;
  setup.bucket_tokens = file.plan.bucket_tokens;
  setup.automatic_bucket = false;
  return judge_plan(std::move(file), *setup.cost);
}

OrderedJson plan_one(const PlanArguments& arguments, const TrainConfig& config, PlanningSetup& setup) {
  const JudgedPlan judged = arguments.read.empty() ? plan_batch(find_batches(arguments, config, setup).front(),
                                                                std::string(name_of(config.scheduler.policy)), setup)
                                                   : read_and_judge(arguments, setup);
  report_plan(judged, setup);
  if (!arguments.output.empty()) {
    write_plan(arguments.output, judged.file);
    log::info("wrote {}", arguments.output);
  }
  if (!arguments.timeline.empty()) {
    draw_timeline(arguments.timeline, judged.file.plan, *setup.cost, setup.zero_stage);
  }
  return plan_to_result(judged, setup);
}

}  // namespace

int plan(const Arguments& arguments) {
  CLI::App app(
      "usage: skrull plan CONFIG.json [key=value ...] [options]\n\nPlans a global batch: which rank computes what, how "
      "long it takes, how much memory it needs.",
      "skrull plan");
  PlanArguments parsed;
  add_options(app, parsed);
  app.allow_extras();
  if (!parse(app, arguments)) return static_cast<int>(ExitCode::done);
  if (!parsed.timeline.empty() && !ends_with_either(parsed.timeline)) {
    throw_invalid_input("skrull plan: --timeline {}: expected a file that ends in .svg or .json", parsed.timeline);
  }
  ConfigSource source = read_arguments(app.remaining());
  if (!parsed.policy.empty()) source.overrides.push_back({"scheduler.policy", parsed.policy});
  if (!parsed.hardware.empty()) source.overrides.push_back({"hardware_profile", parsed.hardware});
  const TrainConfig config = parse_config(source, {"model_name_or_path"});
  const OrderedJson result = [&] {
    if (parsed.memory) {
      const MemoryForecast forecast = forecast_memory(config, parsed.ranks);
      report_memory_forecast(forecast);
      return forecast_to_result(forecast);
    }
    PlanningSetup setup = set_up_planning(config, parsed.ranks);
    return parsed.compare.empty() ? plan_one(parsed, config, setup) : compare(parsed, config, setup);
  }();
  if (parsed.json) std::printf("%s\n", result.dump().c_str());
  return static_cast<int>(ExitCode::done);
}

}  // namespace skrull::cli
