// skrull bench zero: what the ZeRO stages cost and save on this machine.

#include <cstdio>

#include "cli_parse.h"
#include "commands.h"
#include "run_on_all_ranks.h"
#include "skrull/core/error.h"
#include "skrull/core/json.h"
#include "skrull/core/log.h"
#include "skrull/core/text.h"
#include "skrull/train/zero_benchmark.h"
#include "skrull/train/zero_overlap_benchmark.h"

namespace skrull::cli {
namespace {

struct ZeroBenchArguments {
  std::string model;
  bool recompute = false;
  bool json = false;
  bool overlap = false;
  std::int64_t micro_batches = ZeroOverlapOptions().micro_batches;
  double transfer_share = ZeroOverlapOptions().transfer_share;
  ZeroBenchmarkOptions options;
};

void report(const ZeroBenchmark& result, const ZeroBenchmarkOptions& options) {
  log::info("{} ranks, {} tokens each: a step with ZeRO stage {} takes {:.3f} s", result.ranks, options.tokens,
            options.zero_stage, result.step_seconds);
  log::info("memory of a rank: planned {}, most taken {}", format_bytes(result.planned_bytes),
            format_bytes(result.peak_bytes));
  if (options.alone) return;
  log::info("with stage 0, in turns: {:.3f} s; the ratio is {:.3f}, of processor time {:.3f}",
            result.replicated_step_seconds, result.ratio, result.processor_ratio);
  log::info("AdamW: {:.2f} GB/s a rank, {:.1f}% of the {:.2f} GB/s of a sum of two arrays",
            result.adamw_bytes_per_second / 1e9, 100 * result.adamw_over_memory, result.memory_bytes_per_second / 1e9);
}

OrderedJson to_json(const ZeroBenchmark& result, const ZeroBenchmarkOptions& options, const Qwen2Config& model) {
  OrderedJson json = {{"bench", "zero"},
                      {"device", result.device},
                      {"compute_dtype", name_of(options.compute_dtype)},
                      {"parameters", model.parameter_count()},
                      {"ranks", result.ranks},
                      {"tokens", options.tokens},
                      {"zero_stage", options.zero_stage},
                      {"step_seconds", result.step_seconds},
                      {"planned_bytes", result.planned_bytes},
                      {"peak_bytes", result.peak_bytes}};
  if (options.alone) return json;
  json["replicated_step_seconds"] = result.replicated_step_seconds;
  json["ratio"] = result.ratio;
  json["processor_ratio"] = result.processor_ratio;
  json["adamw_bytes_per_second"] = result.adamw_bytes_per_second;
  json["memory_bytes_per_second"] = result.memory_bytes_per_second;
  json["adamw_over_memory"] = result.adamw_over_memory;
  return json;
}

OrderedJson describe(const char* what, const HiddenCommunication& part) {
  log::info("  {:<10} {:8.2f} ms on the link, {:8.2f} ms exposed: {:5.1f}% hidden", what, 1e3 * part.transfer,
            1e3 * part.exposed, 100 * part.hidden_share());
  return {
      {"transfer_seconds", part.transfer}, {"exposed_seconds", part.exposed}, {"hidden_share", part.hidden_share()}};
}

void report_overlap(const ZeroBenchArguments& arguments, const Qwen2Config& model, const ZeroOverlapOptions& options,
                    const ZeroOverlapBenchmark& result) {
  log::info(
      "{} ranks, {} micro-batches of {} tokens each, ZeRO stage {}, {}: computing {:.2f} ms a step, a link of {:.1f} "
      "MB/s",
      result.ranks, options.micro_batches, options.tokens, options.zero_stage, name_of(options.compute_dtype),
      1e3 * result.compute_seconds, 1e-6 * result.bytes_per_second);
  OrderedJson json = {{"bench", "zero overlap"},
                      {"compute_dtype", name_of(options.compute_dtype)},
                      {"parameters", model.parameter_count()},
                      {"ranks", result.ranks},
                      {"tokens", options.tokens},
                      {"micro_batches", options.micro_batches},
                      {"zero_stage", options.zero_stage},
                      {"transfer_share", options.transfer_share},
                      {"bytes_per_second", result.bytes_per_second},
                      {"compute_seconds", result.compute_seconds}};
  json["gathers"] = describe("gathers", result.gathers);
  json["scatters"] = describe("scatters", result.scatters);
  json["all"] = describe("together", result.all);
  if (arguments.json) std::printf("%s\n", json.dump().c_str());
}

void bench_overlap(const ZeroBenchArguments& arguments, const Qwen2Config& model, const MpiSession& session) {
  ZeroOverlapOptions options;
  options.compute_dtype = arguments.options.compute_dtype;
  options.tokens = arguments.options.tokens;
  options.steps = arguments.options.steps;
  options.recompute = arguments.options.recompute;
  options.zero_stage = arguments.options.zero_stage;
  options.micro_batches = arguments.micro_batches;
  options.transfer_share = arguments.transfer_share;
  const ZeroOverlapBenchmark result = bench_zero_overlap(model, options, session);
  if (session.rank() == 0) report_overlap(arguments, model, options, result);
}

}  // namespace

int bench_zero(const Arguments& arguments) {
  CLI::App app(
      "Measures a training step with sharded training state beside the same step without, in turns; AdamW beside the "
      "memory's bandwidth; and memory.\nTo be started by mpirun, as skrull train.",
      "skrull bench zero");
  ZeroBenchArguments parsed;
  app.option_defaults()->always_capture_default();
  app.add_option("--model", parsed.model,
                 "folder with a config.json (its weights are not read); default: a shape of 100 million parameters");
  app.add_option("--zero-stage", parsed.options.zero_stage, "to measure")->check(CLI::Range(0, 3));
  app.add_option("--tokens", parsed.options.tokens, "of every rank's micro-batch")->check(at_least_one());
  app.add_option("--steps", parsed.options.steps, "measured steps")->check(at_least_one());
  app.add_flag("--alone", parsed.options.alone, "without stage 0 beside it: the memory is then that of a run");
  app.add_flag(
      "--overlap", parsed.overlap,
      "instead: how much of the gathers and reductions the computing hides, on an emulated network and processor "
      "time");
  app.add_option("--micro-batches", parsed.micro_batches, "of a step (--overlap)")->check(at_least_one());
  app.add_option("--transfer-share", parsed.transfer_share,
                 "the link makes all transfers of a step take this share of its computing (--overlap)")
      ->check(CLI::PositiveNumber);
  add_compute_dtype(app, parsed.options.compute_dtype);
  app.add_flag("--recompute", parsed.recompute, "keep only each block's input (gradient_checkpointing full)");
  app.add_flag("--json", parsed.json, "print the result as one JSON object");
  if (!parse(app, arguments)) return static_cast<int>(ExitCode::done);
  if (parsed.recompute) parsed.options.recompute = Recompute::full;
  return run_on_all_ranks([&](const MpiSession& session) {
    const Qwen2Config model = parsed.model.empty() ? hundred_million() : load_qwen2_config(parsed.model);
    if (parsed.overlap) return bench_overlap(parsed, model, session);
    const ZeroBenchmark result = skrull::bench_zero(model, parsed.options, session);
    if (session.rank() != 0) return;
    report(result, parsed.options);
    if (parsed.json) std::printf("%s\n", to_json(result, parsed.options, model).dump().c_str());
  });
}

}  // namespace skrull::cli
