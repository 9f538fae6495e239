// Machines that are not as they should be, and failures on the way: the whole program on the device that the CPU plays,
// two ranks that exchange data by NCCL. Each time one clear message, the right exit code, and an end.
#include <signal.h>

#include <regex>
#include <string>
#include <vector>

#include "skrull/core/process.h"
#include "support/catch.h"
#include "train/launched_run.h"
#include "train/training_fixture.h"

using namespace skrull;
using test::contains;
using test::Overrides;

namespace {

const std::string program = std::string(SKRULL_BINARY_DIR) + "/tests/skrull_simt";

struct Scene {
  Scene() {
    options = {"dataset=" + fixture.write("rows.jsonl", test::random_rows(3, 12, 20, 97)).string(),
               "device=cuda",
               "global_batch_size=6",
               "bucket_tokens=60",
               "max_steps=3",
               "overwrite_output_dir=true"};
  }

  /// What a rank runs on a machine with these faults (see simt/stand_in/machine.h).
  test::Command rank(const std::string& faults, const Overrides& more, const std::string& task = "train") const {
    const test::Command command = {"env", "SKRULL_SIMT_GPUS=2", "SKRULL_SIMT_FAULTS=" + faults, program};
    return test::joined(command, fixture.arguments(task, "out", test::joined(options, more)));
  }
  test::CommandResult train(const std::string& faults_of_0, const std::string& faults_of_1,
                            const Overrides& more = {}) const {
    return test::run_command(test::launch_of({rank(faults_of_0, more), rank(faults_of_1, more)}));
  }

  test::TrainingFixture fixture;
  Overrides options;
};

int occurrences(const std::string& text, const std::string& part) {
  int count = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

/// One message, with these words in it.
void check_failed(const test::CommandResult& result, int exit_code, const std::vector<std::string>& words) {
  INFO(result.errors);
  CHECK(result.exit_code == exit_code);
  CHECK(result.output.empty());
  CHECK(occurrences(result.errors, "error: ") == 1);
  for (const std::string& part : words) {
    INFO("expected: " << part);
    CHECK(contains(result.errors, part));
  }
}

}  // namespace

TEST_CASE("a machine in good order trains; the device's memory is told beside the host's") {
  const Scene scene;
  const test::CommandResult result = scene.train("", "");
  INFO(result.errors);
  REQUIRE(result.exit_code == 0);
  CHECK(contains(result.errors, "GPUs exchange data by NCCL"));
  const test::MetricsRows metrics = scene.fixture.metrics("out");
  REQUIRE(metrics.steps.size() == 3);
  for (const Json& step : metrics.steps) {
    const auto on_device = step.at("peak_device_memory_bytes").get<std::int64_t>();
    CHECK(on_device > std::int64_t{64} << 20);  // scratch for both streams is most of it
    CHECK(on_device < std::int64_t{1} << 30);
    CHECK(on_device == metrics.steps[0].at("peak_device_memory_bytes"));  // steps take no more
    CHECK(step.at("peak_memory_bytes").get<std::int64_t>() > 1 << 20);
  }
}

TEST_CASE("no GPU that can be used: why, and exit code 2") {
  const Scene scene;
  const std::vector<std::pair<std::string, std::string>> faults = {
      {"driver=0", "no NVIDIA driver is installed (libcuda.so.1 was not found)"},
      {"driver=12020", "the NVIDIA driver is for CUDA 12.2, this program was built with CUDA 13.0: install a newer"},
      {"error=34", "libcuda.so.1 is the toolkit's stub"},
      {"error=100", "the NVIDIA driver finds no GPU"},
      {"error=802", "start nvidia-fabricmanager"},
      {"error=803", "restart the machine"},
      {"name=Tesla T4;capability=75", "GPU 0 is a 'Tesla T4' of compute capability 7.5, at least 8.0 is needed"},
      {"mode=2", "GPU 0 is in compute mode prohibited"}};
  for (const auto& [fault, reason] : faults) {
    check_failed(scene.train(fault, fault), 2,
                 {"no GPU to compute on for 2 of 2 ranks. Rank 0 on " + host_name() + ": ", reason, "use device=cpu"});
  }
}

TEST_CASE("a GPU for some ranks only: whose is missing, also with device=auto") {
  const Scene scene;
  const std::string where =
      "no GPU to compute on for 1 of 2 ranks. Rank 1 on " + host_name() + ": the NVIDIA driver finds no GPU";
  check_failed(scene.train("", "error=100"), 2, {"device=cuda: " + where});
  check_failed(scene.train("", "error=100", {"device=auto"}), 2, {"device=auto: " + where});
}

TEST_CASE("no GPU and device=auto: the CPU computes, and the log says why") {
  const Scene scene;
  const test::CommandResult result = scene.train("error=100", "error=100", {"device=auto"});
  INFO(result.errors);
  CHECK(result.exit_code == 0);
  CHECK(contains(result.errors, "the CPU computes: the NVIDIA driver finds no GPU"));
}

TEST_CASE("GPUs of different kinds: each rank's host and GPU") {
  const Scene scene;
  const std::string host = " on " + host_name();
  check_failed(
      scene.train("name=NVIDIA H100;capability=90", "name=NVIDIA A100"), 2,
      {"GPUs of different kinds", "\n  rank 0: NVIDIA H100, compute capability 9.0, 4 multiprocessors, 1.0 GiB" + host,
       "\n  rank 1: NVIDIA A100, compute capability 8.0, 4 multiprocessors, 1.0 GiB" + host});
  test::Command smaller = scene.rank("", {});
  smaller.insert(smaller.begin() + 1, "SKRULL_SIMT_DEVICE_MIB=512");
  check_failed(test::run_command(test::launch_of({scene.rank("", {}), scene.rank("", {}), smaller})), 2,
               {"GPUs of different kinds", "\n  ranks 0 to 1: CPU stand-in", "\n  rank 2: CPU stand-in", "512.0 MiB"});
}

TEST_CASE("a GPU that another process has for itself") {
  const Scene scene;
  check_failed(scene.train("", "busy=1"), 1,
               {"rank 1 on " + host_name() + ": cudaSetDevice", "cudaErrorDevicesUnavailable, code 46",
                "compute mode exclusive", "nvidia-smi --compute-mode=0"});
}

TEST_CASE("out of device memory: the table, what was asked, and the bucket that fits, which then does") {
  Scene scene;
  const auto rows = scene.fixture.write("long.jsonl", test::random_rows(4, 12, 1000, 97));
  scene.options.insert(scene.options.end(), {"dataset=" + rows.string(), "global_batch_size=12"});
  const std::string faults = "occupied_mib=954";  // operations have 64 MiB of scratch
  const auto too_large = scene.train(faults, faults, {"bucket_tokens=3500"});
  check_failed(too_large, 1,
               {"out of memory: ", " more were asked for 'activations'", "Held now:\n", "\n  parameters ", "\n  all ",
                "A micro-batch was to hold 3500 tokens (bucket_tokens); about "});
  std::smatch fits;
  REQUIRE(std::regex_search(too_large.errors, fits, std::regex("about ([0-9]+) fit")));
  const auto as_told = scene.train(faults, faults, {"bucket_tokens=" + fits[1].str(), "max_steps=1"});
  INFO(as_told.errors);
  CHECK(as_told.exit_code == 0);
  // On one rank alone, for there another process takes more.
  check_failed(scene.train("", "occupied_mib=955", {"bucket_tokens=" + fits[1].str()}), 1,
               {"rank 1 on " + host_name() + ": out of memory: ", "Held now:\n", "(bucket_tokens); about "});
  // Not even parameters.
  check_failed(scene.train(faults, "occupied_mib=1020"), 1,
               {"rank 1 on " + host_name() + ": out of memory: ", "'scratch of operations'"});
}

TEST_CASE("NCCL that can't start, or that other ranks don't come to") {
  const Scene scene;
  check_failed(scene.train("", "nccl_error=0"), 1, {"start of NCCL", "failed on rank 1 of 2: unhandled system error"});
  check_failed(scene.train("nccl_hang=0", "nccl_hang=0", {"ddp_timeout=2"}), 1,
               {"start of NCCL", "other ranks did not come within 2 s (timeout_seconds)"});
}

TEST_CASE("an error that NCCL finds in the middle of a step, on all ranks or on one") {
  const Scene scene;
  for (const char* stage : {"zero_stage=2", "zero_stage=3"}) {
    const std::string text = "remote process exited or there was a network error";
    check_failed(scene.train("nccl_error=9", "nccl_error=9", {stage}), 1, {"over NCCL (step ", "rank 0 of 2: " + text});
    check_failed(scene.train("", "nccl_error=9", {stage, "offload_optimizer=cpu"}), 1, {"[rank 1] error: ", text});
  }
}

TEST_CASE("an operation of NCCL that never ends is ended by the time-out") {
  const Scene scene;
  const std::string text = "it did not end within 2 s (timeout_seconds): another rank hangs";
  check_failed(scene.train("nccl_hang=9", "nccl_hang=9", {"ddp_timeout=2"}), 1, {"over NCCL (step ", text});
  for (const char* offload : {"offload_optimizer=none", "offload_optimizer=cpu"}) {
    check_failed(scene.train("", "nccl_hang=9", {"ddp_timeout=2", offload}), 1, {"over NCCL (step ", text});
  }
}

TEST_CASE(
    "a rank that hangs is told by the others where they wait for its word; what they have on the way holds up nobody") {
  const Scene scene;
  for (const char* stage : {"zero_stage=2", "zero_stage=3"}) {
    // Between the micro-batches of a step, with an operation of NCCL behind which host memory waits.
    check_failed(scene.train("", "nccl_stop=6", {"ddp_timeout=2", "bucket_tokens=20", "offload_optimizer=cpu", stage}),
                 1, {"rank 1 did not come within 2 s (timeout_seconds)"});
  }
}

TEST_CASE("a GPU that fails in the middle of a step") {
  const Scene scene;
  for (const char* offload : {"offload_optimizer=none", "offload_optimizer=cpu"}) {
    check_failed(scene.train("", "broken_step=1500", {offload, "max_steps=1000"}), 1,
                 {"[rank 1] error: ", "unspecified launch failure (cudaErrorLaunchFailure, code 719)"});
  }
}

TEST_CASE("an evaluation of rings in which the GPU or NCCL of one rank fails") {
  Scene scene;
  const auto rows = scene.fixture.write("long.jsonl", test::random_rows(4, 100, 100, 97));
  const Overrides more = {"dataset=" + rows.string(), "context_parallel_size=2"};
  const auto fail_on_rank_1 = [&](const std::string& faults) {
    return test::run_command(test::launch_of({scene.rank("", more, "eval"), scene.rank(faults, more, "eval")}));
  };
  check_failed(fail_on_rank_1("broken_step=1500"), 1, {"[rank 1] error: ", "unspecified launch failure"});
  check_failed(fail_on_rank_1("nccl_error=20"), 1, {"[rank 1] error: ", "network error"});
}

TEST_CASE("a peer that ends or is killed in the middle of training takes all with it; one that hangs is told") {
  const Scene scene;
  const test::CommandResult exits = scene.train("", "nccl_exit=9");
  INFO(exits.errors);
  CHECK(exits.exit_code != 0);
  CHECK(exits.exit_code != 124);
  CHECK(exits.output.empty());
  const auto endless = [&](const char* offload) {
    return scene.rank("", {"max_steps=100000000", "ddp_timeout=3", offload});
  };
  const auto meets = [&](const test::Command& rank, int signal) {
    std::filesystem::remove(scene.fixture / "out" / "metrics.jsonl");
    test::LaunchedRun job(scene.fixture / "", {rank, rank});
    test::wait_until([&] { return test::is_training(scene.fixture / "out"); });
    job.send(1, signal);
    return job.wait();
  };
  for (const char* offload : {"offload_optimizer=none", "offload_optimizer=cpu"}) {
    check_failed(meets(endless(offload), SIGSTOP), 1, {"within 3 s (timeout_seconds)"});
    const test::CommandResult killed = meets(endless(offload), SIGKILL);
    INFO(killed.errors);
    CHECK(killed.exit_code == 128 + SIGKILL);
    CHECK(killed.output.empty());
  }
}
