// skrull profile: measures this machine into a hardware profile.

#include <cstdio>
#include <filesystem>

#include "cli_parse.h"
#include "commands.h"
#include "run_on_all_ranks.h"
#include "skrull/core/error.h"
#include "skrull/core/json.h"
#include "skrull/core/log.h"
#include "skrull/model/named_models.h"
#include "skrull/train/link_measurement.h"
#include "skrull/train/local_device.h"
#include "skrull/train/profiler.h"

namespace skrull::cli {
namespace {

struct ProfileArguments {
  std::string model = "0.5b";
  DeviceChoice device = DeviceChoice::cpu;
  std::string output = "machine.profile.json";
  int threads = 0;
  bool overwrite = false;
  bool json = false;
  ProfilerOptions profiler;
};

/// What would fail at the end is said before a minute is spent.
void check_output(const std::filesystem::path& file, bool overwrite) {
  std::error_code ignored;
  if (std::filesystem::exists(file, ignored) && !overwrite) {
    throw_invalid_input("skrull profile: {} exists: give another --output, or --overwrite to replace it",
                        file.string());
  }
  const std::filesystem::path folder = file.parent_path();
  if (!folder.empty() && !std::filesystem::is_directory(folder, ignored)) {
    throw_invalid_input("skrull profile: --output {}: there is no folder {}", file.string(), folder.string());
  }
}

/// "mine" of "somewhere/mine.profile.json".
std::string name_of_file(const std::filesystem::path& file) {
  std::filesystem::path name = file.filename();
  while (name.has_extension() && (name.extension() == ".json" || name.extension() == ".profile")) name = name.stem();
  return name.string();
}

void report(const ProfilerResult& result) {
  const HardwareProfile& profile = result.profile;
  const double linear = profile.linear_peak_flops.points().front().value;
  const double attention = profile.attention_peak_flops.points().front().value;
  log::info("layers and head, forward and backward, by tokens:");
  for (const auto& [tokens, share] : profile.linear_efficiency.points()) {
    log::info("{:>8.0f} {:8.1f} GFLOP/s", tokens, share * linear / 1e9);
  }
  log::info("attention, forward and backward, by the length of a sequence:");
  for (const auto& [length, share] : profile.attention_efficiency.points()) {
    log::info("{:>8.0f} {:8.1f} GFLOP/s", length, share * attention / 1e9);
  }
  log::info("links inside a node: {:.3g} GB/s, {:.3g} us ({})", profile.intra_node.bytes_per_s / 1e9,
            1e6 * profile.intra_node.latency_s, profile.sources.at("links.intra"));
  log::info("{} rounds in {:.0f} s", result.rounds, result.seconds);
}

void write(const ProfileArguments& arguments, const Device& device, const ProfilerResult& result) {
  report(result);
  write_hardware_profile(arguments.output, result.profile);
  log::info("wrote {}", arguments.output);
  if (!arguments.json) return;
  const OrderedJson json = {{"profile_file", arguments.output},
                            {"device", device.description()},
                            {"compute_dtype", name_of(arguments.profiler.compute_dtype)},
                            {"tokens", result.tokens},
                            {"rounds", result.rounds},
                            {"seconds", result.seconds},
                            {"profile", OrderedJson::parse(hardware_profile_to_json(result.profile))}};
  std::printf("%s\n", json.dump().c_str());
}

/// All ranks measure at once, as they will compute at once; rank 0 writes what it measured.
void run(const ProfileArguments& arguments, const MpiSession& session) {
  const CpuShare share = spread_over_cores(session.local_rank(), session.local_size());
  const std::unique_ptr<Communicator> world = session.world();
  const auto device = make_local_device(arguments.device, arguments.threads > 0 ? arguments.threads : share.threads,
                                        session.local_rank());
  ControlChannel control(*world, device->communication_stream());
  const Qwen2Config model = control.run_together([&] {
    if (session.rank() == 0) check_output(arguments.output, arguments.overwrite);
    return find_model(arguments.model);
  });
  ProfilerResult result = measure_hardware_profile(model, arguments.profiler, *device);
  result.profile.name = name_of_file(arguments.output);
  set_links(result.profile, measure_links(session, *device), session.size());
  control.run_together([&] {
    if (session.rank() == 0) write(arguments, *device, result);
  });
}

}  // namespace

int profile(const Arguments& arguments) {
  CLI::App app(
      "Measures this machine with a model's own layers, head and attention into a hardware profile, by which schedules "
      "are made:\nhardware_profile=FILE. Start it as the training will be started (mpirun -np N skrull profile): ranks "
      "measure at once, with as many threads as\neach will have, and the links between them, while the machine does "
      "nothing else. `skrull bench step --profile FILE` then shows how well it predicts.",
      "skrull profile");
  ProfileArguments parsed;
  app.option_defaults()->always_capture_default();
  app.add_option("--model", parsed.model,
                 "the shape of a Qwen2.5 model (0.5b, 1.5b, 3b, 7b, 14b, 32b, 72b), or a folder with a config.json");
  app.add_option("--output", parsed.output, "file to write (skrull-profile/1)");
  app.add_flag("--overwrite", parsed.overwrite, "replace the file if it exists");
  app.add_option("--threads", parsed.threads, "of a rank; 0: its share of the cores")->check(CLI::NonNegativeNumber);
  app.add_option("--seconds", parsed.profiler.seconds,
                 "to measure for, about; decides the largest micro-batch and how often each is repeated")
      ->check(CLI::PositiveNumber);
  add_device(app, parsed.device);
  add_compute_dtype(app, parsed.profiler.compute_dtype);
  app.add_flag("--json", parsed.json, "print the result as one JSON object");
  if (!parse(app, arguments)) return static_cast<int>(ExitCode::done);
  return run_on_all_ranks([&](const MpiSession& session) { run(parsed, session); });
}

}  // namespace skrull::cli
