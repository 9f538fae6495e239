// skrull bench checkpoint: how fast a checkpoint is written and read, beside the disk itself.

#include <cstdio>

#include "cli_parse.h"
#include "commands.h"
#include "run_on_all_ranks.h"
#include "skrull/core/json.h"
#include "skrull/core/log.h"
#include "skrull/core/text.h"
#include "skrull/model/named_models.h"
#include "skrull/train/checkpoint_benchmark.h"

namespace skrull::cli {
namespace {

struct CheckpointBenchArguments {
  std::string model = "0.5b";
  bool json = false;
  CheckpointBenchmarkOptions options;
};

OrderedJson describe(const char* what, const TransferRates& rates) {
  log::info(
      "  {}: {:.0f} MB/s; plain {:.0f} MB/s (the checkpoint reaches {:.1f}%), past the page cache {:.0f} MB/s ({:.1f}% "
      "of the faster)",
      what, rates.checkpoint / 1e6, rates.plain / 1e6, 100 * rates.over_plain, rates.direct / 1e6,
      100 * rates.over_fastest);
  return {{"bytes_per_second", rates.checkpoint},
          {"plain_bytes_per_second", rates.plain},
          {"direct_bytes_per_second", rates.direct},
          {"over_plain", rates.over_plain},
          {"over_fastest", rates.over_fastest}};
}

}  // namespace

int bench_checkpoint(const Arguments& arguments) {
  CLI::App app(
      "Writes and reads a checkpoint beside a plain file of as many bytes, in turns: as dd bs=16M conv=fsync does, and "
      "past the page\ncache as dd oflag=direct or iflag=direct does. To be started by mpirun, as skrull train.",
      "skrull bench checkpoint");
  CheckpointBenchArguments parsed;
  parsed.options.folder = ".";
  app.option_defaults()->always_capture_default();
  app.add_option("--model", parsed.model,
                 "the shape of a Qwen2.5 model (0.5b, 1.5b, 3b, 7b, 14b, 32b, 72b), or a folder with a config.json");
  app.add_option("--folder", parsed.options.folder,
                 "on the disk to measure; it needs room for three checkpoints, and is left as it was");
  app.add_option("--zero-stage", parsed.options.zero_stage, "of the state that is saved")->check(CLI::Range(0, 3));
  app.add_option("--turns", parsed.options.turns, "values are medians over them")->check(at_least_one());
  app.add_flag("--json", parsed.json, "print the result as one JSON object");
  if (!parse(app, arguments)) return static_cast<int>(ExitCode::done);
  return run_on_all_ranks([&](const MpiSession& session) {
    const Qwen2Config model = find_model(parsed.model);
    const CheckpointBenchmark result = skrull::bench_checkpoint(model, parsed.options, session);
    if (session.rank() != 0) return;
    log::info("{} ranks, ZeRO stage {}: a checkpoint of {}", result.ranks, parsed.options.zero_stage,
              format_bytes(result.bytes));
    OrderedJson json = {{"bench", "checkpoint"},
                        {"parameters", model.parameter_count()},
                        {"ranks", result.ranks},
                        {"zero_stage", parsed.options.zero_stage},
                        {"bytes", result.bytes}};
    json["write"] = describe("write", result.write);
    json["read"] = describe("read", result.read);
    if (parsed.json) std::printf("%s\n", json.dump().c_str());
  });
}

}  // namespace skrull::cli
