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

namespace skrull::cli {
namespace {

struct ZeroBenchArguments {
  std::string model;
  bool recompute = false;
  bool json = false;
  ZeroBenchmarkOptions options;
};

void report(const ZeroBenchmark& result, const ZeroBenchmarkOptions& options) {
  log::info("{} ranks, {} tokens each: a step with ZeRO stage {} takes {:.3f} s", result.ranks, options.tokens,
            options.zero_stage, result.step_seconds);
  log::info("memory of a rank: planned {}, most resident {}", format_bytes(result.planned_bytes),
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
  add_compute_dtype(app, parsed.options.compute_dtype);
  app.add_flag("--recompute", parsed.recompute, "keep only each block's input (gradient_checkpointing full)");
  app.add_flag("--json", parsed.json, "print the result as one JSON object");
  if (!parse(app, arguments)) return static_cast<int>(ExitCode::done);
  if (parsed.recompute) parsed.options.recompute = Recompute::full;
  return run_on_all_ranks([&](const MpiSession& session) {
    const Qwen2Config model = parsed.model.empty() ? hundred_million() : load_qwen2_config(parsed.model);
    const ZeroBenchmark result = skrull::bench_zero(model, parsed.options, session);
    if (session.rank() != 0) return;
    report(result, parsed.options);
    if (parsed.json) std::printf("%s\n", to_json(result, parsed.options, model).dump().c_str());
  });
}

}  // namespace skrull::cli
