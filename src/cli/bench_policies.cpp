#include <algorithm>
#include <cmath>
#include <cstdio>

#include "cli_parse.h"
#include "run_on_all_ranks.h"
#include "skrull/core/json.h"
#include "skrull/core/log.h"
#include "skrull/model/named_models.h"
#include "skrull/schedule/length_generator.h"
#include "skrull/train/policy_benchmark.h"

namespace skrull::cli {
namespace {

struct PolicyBenchArguments {
  std::string model;
  std::string policies = "skrull,skrull-paper,packed,packed-balanced,deepspeed";
  std::string draw = "long-tail";
  std::string hardware = "h100_4x8";
  std::int64_t batches = 2;
  std::int64_t global_batch_size = 32;
  std::int64_t longest = 48000;
  std::int64_t seed = 1;
  PolicyBenchmarkOptions options;
  bool json = false;
};

/// Small enough for a few cores: attention is half of a layer's work at 4096 tokens.
Qwen2Config small_model() {
  Qwen2Config model;
  model.vocab_size = 512;
  model.hidden_size = 256;
  model.intermediate_size = 1024;
  model.num_layers = 2;
  model.num_heads = 4;
  model.num_kv_heads = 1;
  model.head_dim = 64;
  model.max_position_embeddings = 32768;
  model.initializer_range = 0.02;
  model.tie_word_embeddings = true;
  return model;
}

std::vector<std::vector<std::int64_t>> draw_batches(const PolicyBenchArguments& arguments) {
  auto batches =
      draw_length_batches(find_length_distribution(arguments.draw), arguments.batches, arguments.global_batch_size,
                          arguments.longest, static_cast<std::uint64_t>(arguments.seed));
  for (auto& lengths : batches) {
    for (std::int64_t& length : lengths) {
      // A row of one token has nothing to train.
      length = std::max<std::int64_t>(2, std::llround(static_cast<double>(length) * arguments.options.length_scale));
    }
  }
  return batches;
}

void report(const PolicyBenchArguments& arguments, const PolicyBenchmark& result) {
  const LinkRate& link = result.profile.intra_node;
  log::info(
      "{} x {} ranks, {} batches of {} sequences ({}, scaled by {}), at most {} tokens of a rank; links of {:.3g} "
      "MB/s, {:.3g} us",
      result.data_parallel, result.context_parallel, arguments.batches, arguments.global_batch_size, arguments.draw,
      arguments.options.length_scale, arguments.options.bucket_tokens, 1e-6 * link.bytes_per_s, 1e6 * link.latency_s);
  const MeasuredPolicy& first = result.policies.front();
  OrderedJson rows = OrderedJson::array();
  for (const MeasuredPolicy& policy : result.policies) {
    log::info(
        "  {:<16} measured {:8.4f} s, predicted {:8.4f} ({:5.1f}%); {} is {:5.2f}x as fast, predicted {:5.2f}x; "
        "communication {:7.4f} s, exposed {:7.4f}; {} micro-batches",
        policy.policy, policy.measured, policy.predicted, 100 * policy.predicted / policy.measured, first.policy,
        policy.measured / first.measured, policy.predicted / first.predicted, policy.communication, policy.exposed,
        policy.micro_batches);
    rows.push_back({{"policy", policy.policy},
                    {"measured_seconds", policy.measured},
                    {"predicted_seconds", policy.predicted},
                    {"slower_than_first", policy.measured / first.measured},
                    {"predicted_slower_than_first", policy.predicted / first.predicted},
                    {"comm_seconds", policy.communication},
                    {"comm_exposed_seconds", policy.exposed},
                    {"micro_batches", policy.micro_batches}});
  }
  const OrderedJson json = {{"bench", "policies"},
                            {"data_parallel", result.data_parallel},
                            {"context_parallel", result.context_parallel},
                            {"lengths", arguments.draw},
                            {"length_scale", arguments.options.length_scale},
                            {"batches", arguments.batches},
                            {"global_batch_size", arguments.global_batch_size},
                            {"bucket_tokens", arguments.options.bucket_tokens},
                            {"cluster", arguments.hardware},
                            {"link_bytes_per_s", link.bytes_per_s},
                            {"link_latency_s", link.latency_s},
                            {"policies", std::move(rows)}};
  if (arguments.json) std::printf("%s\n", json.dump().c_str());
}

void add_options(CLI::App& app, PolicyBenchArguments& arguments) {
  app.option_defaults()->always_capture_default();
  app.add_option("--model", arguments.model,
                 "folder with a config.json (its weights are not read); default: 2 layers of hidden size 256");
  app.add_option("--policies", arguments.policies,
                 "all, or names separated by commas; the others are compared to the first");
  app.add_option("--context-parallel", arguments.options.context_parallel, "ranks of a replica")->check(at_least_one());
  app.add_option("--draw", arguments.draw, "distribution of lengths, as for skrull plan --draw");
  app.add_option("--longest", arguments.longest, "longest length to draw, before scaling")->check(at_least_one());
  app.add_option("--length-scale", arguments.options.length_scale,
                 "factor on drawn lengths: 0.25 gives the default model's attention the share that Qwen2.5-0.5B's has "
                 "without")
      ->check(CLI::PositiveNumber);
  app.add_option("--seed", arguments.seed, "of the draws");
  app.add_option("--batches", arguments.batches, "global batches")->check(at_least_one());
  app.add_option("--global-batch-size", arguments.global_batch_size, "sequences of each")->check(at_least_one());
  app.add_option("--bucket-tokens", arguments.options.bucket_tokens, "tokens of a rank in a micro-batch")
      ->check(at_least_one());
  app.add_option("--cluster", arguments.hardware,
                 "hardware profile: the emulated links are to this machine what its links are to its GPUs when they "
                 "train Qwen2.5-0.5B on lengths that were not scaled");
  app.add_option("--profile-seconds", arguments.options.profile_seconds, "to measure this machine for")
      ->check(CLI::PositiveNumber);
  app.add_option("--turns", arguments.options.turns, "values are medians over them")->check(at_least_one());
  add_compute_dtype(app, arguments.options.compute_dtype);
  app.add_flag("--json", arguments.json, "print the result as one JSON object");
}

}  // namespace

int bench_policies(const Arguments& arguments) {
  CLI::App app(
      "Measures scheduling policies: trains the same batches by the plans of each, on an emulated network whose links "
      "are to these\nprocessors what a cluster's are to its GPUs: mpirun -np 4 skrull bench policies "
      "--context-parallel 4.",
      "skrull bench policies");
  PolicyBenchArguments parsed;
  parsed.options.bucket_tokens = 4096;
  parsed.options.length_scale = 0.25;
  add_options(app, parsed);
  if (!parse(app, arguments)) return static_cast<int>(ExitCode::done);
  return run_on_all_ranks([&](const MpiSession& session) {
    parsed.options.model = parsed.model.empty() ? small_model() : load_qwen2_config(parsed.model);
    parsed.options.policies = parse_policies(parsed.policies);
    parsed.options.batches = draw_batches(parsed);
    parsed.options.cluster = find_hardware_profile(parsed.hardware);
    parsed.options.cluster_model = find_model("0.5b").shape();
    spread_over_cores(session.local_rank(), session.local_size());
    const PolicyBenchmark result = skrull::bench_policies(parsed.options, session);
    if (session.rank() == 0) report(parsed, result);
  });
}

}  // namespace skrull::cli
