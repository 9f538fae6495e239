// skrull doctor: what this machine has, and whether its device computes right.

#include <algorithm>
#include <cstdio>

#include "cli_parse.h"
#include "commands.h"
#include "run_on_all_ranks.h"
#include "skrull/core/error.h"
#include "skrull/core/json.h"
#include "skrull/core/log.h"
#include "skrull/core/stopwatch.h"
#include "skrull/core/text.h"
#include "skrull/device/machine_part.h"
#include "skrull/device/ops_check.h"
#include "skrull/train/local_device.h"

namespace skrull::cli {
namespace {

struct DoctorArguments {
  DeviceChoice device = DeviceChoice::automatic;
  AttentionChoice attention;
  std::vector<std::string> operations;
  bool self_test = false;
  bool json = false;
};

#ifdef __clang__
constexpr const char* compiler = "clang " __clang_version__;
#else
constexpr const char* compiler = "g++ " __VERSION__;
#endif

const char* name_of_state(PartState state) {
  switch (state) {
    case PartState::ok:
      return "ok";
    case PartState::missing:
      return "missing";
    default:
      return "broken";
  }
}

std::vector<MachinePart> examine_machine() {
  const auto cpu = make_cpu_device();
  std::vector<MachinePart> parts = {
      {"program", PartState::ok, std::string("skrull " SKRULL_VERSION ", compiled by ") + compiler, ""},
      {"processor", PartState::ok, cpu->description(), ""},
      {"memory", PartState::ok, format_bytes(cpu->free_bytes()) + " available", ""},
      mpi_part()};
  for (MachinePart& part : cuda_parts()) parts.push_back(std::move(part));
  return parts;
}

OrderedJson report(const std::vector<MachinePart>& parts) {
  OrderedJson rows = OrderedJson::array();
  for (const MachinePart& part : parts) {
    log::info("{:<14} {:<8} {}", part.name, name_of_state(part.state), part.found);
    if (!part.advice.empty()) log::info("{:<14} {:<8} -> {}", "", "", part.advice);
    rows.push_back(
        {{"part", part.name}, {"state", name_of_state(part.state)}, {"found", part.found}, {"advice", part.advice}});
  }
  return rows;
}

OrderedJson run_self_test(const DoctorArguments& arguments, Device& device) {
  log::info("self-test on {}", device.description());
  const Stopwatch watch;
  OpsCheckOptions options;
  options.operations = arguments.operations;
  options.same_bits = arguments.attention.deterministic;
  const std::vector<OpCheck> checks = check_ops(device, options);
  OrderedJson failures = OrderedJson::array();
  for (const std::string& difference : device.check_instructions()) {
    log::error("instructions: {}", difference);
    failures.push_back("instructions: " + difference);
  }
  std::size_t wrong = 0;
  for (const OpCheck& check : checks) {
    if (check.passed()) continue;
    ++wrong;
    log::error("{}", to_string(check));
    failures.push_back(to_string(check));
  }
  const std::size_t operations =
      arguments.operations.empty() ? checked_operations().size() : arguments.operations.size();
  log::info("{} of {} checks of {} operations passed, in {:.1f} s", checks.size() - wrong, checks.size(), operations,
            watch.seconds());
  return {{"device", device.description()}, {"checks", checks.size()}, {"failures", failures}};
}

void run(const DoctorArguments& arguments, const MpiSession& session) {
  if (session.rank() != 0) return;
  OrderedJson result = {{"parts", report(examine_machine())}};
  if (arguments.self_test) {
    const auto device = make_local_device(arguments.device, 0, session.local_rank(), arguments.attention);
    result["self_test"] = run_self_test(arguments, *device);
  }
  if (arguments.json) std::printf("%s\n", result.dump().c_str());
  if (!arguments.self_test) return;
  const std::size_t failures = result["self_test"]["failures"].size();
  if (failures != 0) throw_run_failure("the self-test failed: {} results are wrong", failures);
}

}  // namespace

int doctor(const Arguments& arguments) {
  CLI::App app(
      "Says what this machine has of what Skrull can use, and what to do about what is missing. A machine without GPUs "
      "is fine: the program computes on\nits processors. Under mpirun, rank 0 speaks.",
      "skrull doctor");
  DoctorArguments parsed;
  app.option_defaults()->always_capture_default();
  app.add_flag("--self-test", parsed.self_test,
               "run every operation of the device and compare it with its definition in fp64; exit code 1 where one is "
               "wrong");
  add_device(app, parsed.device);
  add_attention(app, parsed.attention);
  app.add_option("--operations", parsed.operations, "of the self-test, all if none is named: attention_backward ...")
      ->delimiter(',');
  app.add_flag("--json", parsed.json, "print the result as one JSON object");
  if (!parse(app, arguments)) return static_cast<int>(ExitCode::done);
  return run_on_all_ranks([&](const MpiSession& session) { run(parsed, session); });
}

}  // namespace skrull::cli
