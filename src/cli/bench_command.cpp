// skrull bench: how fast this machine trains, as ratios measured side by side.

#include <cstdio>
#include <map>
#include <optional>

#include "cli_parse.h"
#include "commands.h"
#include "skrull/core/error.h"
#include "skrull/core/json.h"
#include "skrull/core/log.h"
#include "skrull/core/text.h"
#include "skrull/model/named_models.h"
#include "skrull/train/local_device.h"
#include "skrull/train/step_benchmark.h"

namespace skrull::cli {
namespace {

struct BenchArguments {
  std::string what;
  std::string model = "0.5b";
  std::int64_t layers = 0;
  std::string profile;
  bool recompute = false;
  std::int64_t length = 4096;
  std::int64_t longest = 0;
  double seconds = 0.2;
  bool json = false;
  StepBenchmarkOptions step;
};

OrderedJson to_json(const OpRate& rate) {
  return {{"name", rate.name},
          {"seconds", rate.seconds},
          {"gflops", rate.gflops},
          {"gigabytes_per_second", rate.gigabytes_per_second}};
}

OrderedJson step_result(const BenchArguments& arguments, const Qwen2Config& model) {
  std::optional<HardwareProfile> profile;
  if (!arguments.profile.empty()) profile = find_hardware_profile(arguments.profile);
  const StepBenchmark result = bench_step(model, arguments.step);
  log::info(
      "step of {} tokens: {:.4g} s, of which {:.4g} s update; {:.0f} GFLOP/s = {:.1f}% of the {:.0f} GFLOP/s of its "
      "products; {:.0f} tokens/s, {:.1f}% of the device's peak of {:.0f} GFLOP/s",
      result.tokens, result.step_seconds, result.update_seconds, result.step_flops_per_second / 1e9, 100 * result.ratio,
      result.product_flops_per_second / 1e9, static_cast<double>(result.tokens) / result.step_seconds,
      100 * result.model_flops_utilization(), result.peak_flops_per_second / 1e9);
  log::info("memory: planned {}, most taken {}, {:.1f}% of the {} that were free", format_bytes(result.planned_bytes),
            format_bytes(result.peak_bytes), 100 * result.filled_share(), format_bytes(result.available_bytes));
  OrderedJson json = {{"bench", "step"},
                      {"device", result.device},
                      {"compute_dtype", name_of(arguments.step.compute_dtype)},
                      {"parameters", model.parameter_count()},
                      {"layers", model.num_layers},
                      {"tokens", result.tokens},
                      {"lengths", result.lengths},
                      {"step_seconds", result.step_seconds},
                      {"fastest_step_seconds", result.fastest_step_seconds},
                      {"update_seconds", result.update_seconds},
                      {"model_gflops_per_second", result.step_flops_per_second / 1e9},
                      {"product_gflops_per_second", result.product_flops_per_second / 1e9},
                      {"ratio", result.ratio},
                      {"tokens_per_second", static_cast<double>(result.tokens) / result.step_seconds},
                      {"peak_gflops_per_second", result.peak_flops_per_second / 1e9},
                      {"model_flops_utilization", result.model_flops_utilization()},
                      {"available_bytes", result.available_bytes},
                      {"planned_bytes", result.planned_bytes},
                      {"peak_bytes", result.peak_bytes},
                      {"filled_share", result.filled_share()}};
  if (profile) {
    const double predicted = predict_step(model.shape(), result.lengths, arguments.step.recompute, *profile);
    log::info("profile {} predicts {:.4g} s: {:.1f}% of the measured {:.4g} s", profile->name, predicted,
              100 * predicted / result.step_seconds, result.step_seconds);
    json["profile"] = profile->name;
    json["predicted_step_seconds"] = predicted;
    json["predicted_over_measured"] = predicted / result.step_seconds;
  }
  return json;
}

/// Attention in turns with the model's products, so that the ratio holds on a machine whose speed drifts.
OrderedJson attention_result(Device& device, const BenchArguments& arguments, const BenchShape& shape) {
  const auto products = bench_products(device, shape, arguments.step.compute_dtype, arguments.seconds);
  double flops = 0;
  double seconds = 0;
  for (const OpRate& rate : products) {
    flops += rate.gflops * rate.seconds;
    seconds += rate.seconds;
  }
  const double product_gflops = flops / seconds;
  const auto rates = bench_attention(device, shape, arguments.length, arguments.step.compute_dtype, arguments.seconds);
  double attention_flops = 0;
  double attention_seconds = 0;
  for (const OpRate& rate : rates) {
    attention_flops += rate.gflops * rate.seconds;
    attention_seconds += rate.seconds;
    log::info("{:<20} {:8.1f} GFLOP/s", rate.name, rate.gflops);
  }
  const double gflops = attention_flops / attention_seconds;
  log::info("{:<20} {:8.1f} GFLOP/s, {:.1f}% of the products' {:.1f}", "together", gflops,
            100 * gflops / product_gflops, product_gflops);
  return {{"bench", "attention"},
          {"device", device.description()},
          {"compute_dtype", name_of(arguments.step.compute_dtype)},
          {"length", arguments.length},
          {"forward_gflops", rates[0].gflops},
          {"backward_gflops", rates[1].gflops},
          {"gflops", gflops},
          {"product_gflops", product_gflops},
          {"ratio", gflops / product_gflops}};
}

OrderedJson ops_result(Device& device, const BenchArguments& arguments, const BenchShape& shape) {
  OrderedJson rows = OrderedJson::array();
  for (const OpRate& rate : bench_ops(device, shape, arguments.step.compute_dtype, arguments.seconds)) {
    log::info("{:<32} {:10.3f} ms {:10.1f} GFLOP/s {:8.1f} GB/s", rate.name, 1e3 * rate.seconds, rate.gflops,
              rate.gigabytes_per_second);
    rows.push_back(to_json(rate));
  }
  return {{"bench", "ops"},
          {"device", device.description()},
          {"compute_dtype", name_of(arguments.step.compute_dtype)},
          {"operations", rows}};
}

}  // namespace

int bench(const Arguments& arguments) {
  using Command = int (*)(const Arguments&);
  const std::map<std::string, Command> with_own_options = {{"schedule", bench_schedule},
                                                           {"ring", bench_ring},
                                                           {"policies", bench_policies},
                                                           {"zero", bench_zero},
                                                           {"checkpoint", bench_checkpoint}};
  if (!arguments.empty() && with_own_options.contains(arguments.front())) {
    return with_own_options.at(arguments.front())({arguments.begin() + 1, arguments.end()});
  }
  CLI::App app(
      "Measures this machine: a whole training step, attention, or every operation, beside its matrix products.\n"
      "Or, with options of their own, `skrull bench schedule`: the policies' plans; `skrull bench policies`: the "
      "policies in training, on an emulated network; `skrull bench ring`: ring attention on one; `skrull bench zero`: "
      "sharded training state; `skrull bench checkpoint`: saving and loading.",
      "skrull bench");
  BenchArguments parsed;
  app.option_defaults()->always_capture_default();
  app.add_option("what", parsed.what, "step, attention or ops")
      ->required()
      ->check(CLI::IsMember({"step", "attention", "ops"}));
  app.add_option("--model", parsed.model,
                 "the shape of a Qwen2.5 model (0.5b, 1.5b, 3b, 7b, 14b, 32b, 72b), or a folder with a config.json");
  app.add_option("--profile", parsed.profile,
                 "of `step`: a hardware profile, by name or file; its prediction is printed beside the measured time");
  app.add_option("--tokens", parsed.step.tokens, "of the micro-batch")->check(at_least_one());
  app.add_option("--longest", parsed.longest, "of `step`: the most tokens of one of its sequences; 0: half of them all")
      ->check(CLI::NonNegativeNumber);
  app.add_flag("--fill-memory", parsed.step.fill_memory, "of `step`: as many tokens as the device has memory for");
  app.add_option("--steps", parsed.step.steps, "measured steps")->check(at_least_one());
  app.add_option("--length", parsed.length, "of the sequence of `attention`")->check(at_least_one());
  app.add_option("--seconds", parsed.seconds, "for each operation");
  app.add_option("--layers", parsed.layers, "of `step`, in place of the model's; 0: all")
      ->check(CLI::NonNegativeNumber);
  add_device(app, parsed.step.device);
  add_attention(app, parsed.step.attention);
  app.add_option("--threads", parsed.step.threads, "of the CPU; 0: all cores");
  add_compute_dtype(app, parsed.step.compute_dtype);
  app.add_flag("--recompute", parsed.recompute, "keep only each block's input (gradient_checkpointing full)");
  app.add_flag("--json", parsed.json, "print the result as one JSON object");
  if (!parse(app, arguments)) return static_cast<int>(ExitCode::done);
  parsed.step.recompute = parsed.recompute ? Recompute::full : Recompute::selective;
  Qwen2Config model = find_model(parsed.model);
  if (parsed.layers > 0) model.num_layers = parsed.layers;
  if (parsed.longest > 0) parsed.step.longest = parsed.longest;

  OrderedJson result;
  if (parsed.what == "step") {
    result = step_result(parsed, model);
  } else {
    const std::unique_ptr<Device> device =
        make_local_device(parsed.step.device, parsed.step.threads, 0, parsed.step.attention);
    const BenchShape shape = bench_shape(model, parsed.step.tokens);
    result = parsed.what == "ops" ? ops_result(*device, parsed, shape) : attention_result(*device, parsed, shape);
  }
  if (parsed.json) std::printf("%s\n", result.dump().c_str());
  return static_cast<int>(ExitCode::done);
}

}  // namespace skrull::cli
