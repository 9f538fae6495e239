// Runs that fail on the way: a full disk, a killed rank, ranks that disagree. Non-zero exit code, a reason, no hang.
#include <signal.h>
#include <sys/mount.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <functional>
#include <thread>

#include "skrull/core/file.h"
#include "support/catch.h"
#include "train/training_fixture.h"

using namespace skrull;
using test::Overrides;
namespace fs = std::filesystem;

namespace {

const std::string program = std::string(SKRULL_BINARY_DIR) + "/skrull";

/// Seconds after which a run that hangs is ended with exit code 124.
const std::vector<std::string> with_time_limit = {"timeout", "--kill-after=5", "120"};

std::string quoted(const std::vector<std::string>& words) {
  std::string line;
  for (const std::string& word : words) line += "'" + word + "' ";
  return line;
}

Overrides options(test::TrainingFixture& fixture) {
  return {"dataset=" + fixture.write("rows.jsonl", test::random_rows(51, 6, 20, 97)).string(), "max_steps=2"};
}

/// A small file system of its own, where root may mount one.
class SmallDisk {
 public:
  SmallDisk(fs::path folder, const char* size) : folder_(std::move(folder)) {
    fs::create_directories(folder_);
    mounted_ = ::mount("tmpfs", folder_.c_str(), "tmpfs", 0, size) == 0;
    if (!mounted_) std::printf("skipped: no file system can be mounted here\n");
  }
  ~SmallDisk() {
    if (mounted_) ::umount2(folder_.c_str(), MNT_DETACH);
  }
  SmallDisk(const SmallDisk&) = delete;
  SmallDisk& operator=(const SmallDisk&) = delete;
  bool mounted() const { return mounted_; }

 private:
  fs::path folder_;
  bool mounted_ = false;
};

bool holds_a_model(const fs::path& folder) {
  return fs::exists(folder / "model.safetensors") || fs::exists(folder / "config.json");
}

std::vector<std::string> launch(int ranks, std::vector<std::string> command) {
  ::setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 1);
  ::setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 1);
  std::vector<std::string> all = with_time_limit;
  all.insert(all.end(), {"mpirun", "--oversubscribe", "-np", std::to_string(ranks)});
  all.insert(all.end(), command.begin(), command.end());
  return all;
}

/// Trains on so many ranks into "out", and once a few steps are done calls `before` with the process of rank 1 and
/// kills it.
test::CommandResult kill_rank_1(test::TrainingFixture& fixture, const Overrides& run, int ranks,
                                const std::function<void(pid_t)>& before) {
  const std::vector<std::string> command = {"bash", "-c",
                                            "echo $$ > " + (fixture / "pid-").string() +
                                                "$OMPI_COMM_WORLD_RANK; exec " + quoted({program}) +
                                                quoted(fixture.arguments("train", "out", run))};
  test::CommandResult result;
  std::thread job([&] { result = test::run_command(launch(ranks, command)); });
  for (int waited = 0; waited < 1000; ++waited) {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    const fs::path metrics = fixture / "out" / "metrics.jsonl";
    if (fs::exists(metrics) && fs::file_size(metrics) > 1000) break;
  }
  const pid_t victim = std::atoi(read_file(fixture / "pid-1").c_str());
  before(victim);
  CHECK(::kill(victim, SIGKILL) == 0);
  job.join();
  return result;
}

}  // namespace

TEST_CASE("a full disk while saving is an error that names the file; a checkpoint before it stays", "[failed_run]") {
  test::TrainingFixture fixture;
  // The model takes 84 kB, the moments twice that: a checkpoint fits, the model beside it does not.
  const SmallDisk disk(fixture / "disk", "size=320k");
  if (!disk.mounted()) return;
  for (const int ranks : {0, 2}) {
    Overrides run = options(fixture);
    run.emplace_back("save_steps=1");
    run.emplace_back("overwrite_output_dir=true");
    const auto result = fixture.run("disk", run, ranks);
    INFO(result.errors);
    CHECK(result.exit_code == 1);
    CHECK(test::contains(result.errors, "/disk/.saving-model"));
    CHECK(test::contains(result.errors, "free"));
    CHECK(result.output.empty());
    CHECK(fs::exists(fixture / "disk" / "checkpoint-1" / "config.json"));
    CHECK_FALSE(fs::exists(fixture / "disk" / ".saving-model"));
    CHECK_FALSE(holds_a_model(fixture / "disk"));
    CHECK(fixture.metrics("disk").steps.size() == 2);
  }
}

TEST_CASE("an earlier run's model stays until the new one is saved", "[failed_run]") {
  test::TrainingFixture fixture;
  // One model fits beside the small files of a run, two don't.
  const SmallDisk disk(fixture / "disk", "size=160k");
  if (!disk.mounted()) return;
  Overrides run = options(fixture);
  run.emplace_back("overwrite_output_dir=true");
  fixture.run_here("disk", run);
  const std::string model = read_file(fixture / "disk" / "model.safetensors");
  const auto result = fixture.run("disk", run, 2);
  INFO(result.errors);
  CHECK(result.exit_code == 1);
  CHECK(test::contains(result.errors, "warning: " + (fixture / "disk").string() + ": the disk has "));
  CHECK(test::contains(result.errors, "the disk is too full to save the model"));
  CHECK(read_file(fixture / "disk" / "model.safetensors") == model);
  CHECK(fs::exists(fixture / "disk" / "config.json"));
}

TEST_CASE("a limit on the size of files is a failed write, not a sudden end", "[failed_run]") {
  test::TrainingFixture fixture;
  const auto arguments = fixture.arguments("train", "out", options(fixture));
  const auto result = test::run_command({"bash", "-c", "ulimit -f 40; " + quoted({program}) + quoted(arguments)});
  INFO(result.errors);
  CHECK(result.exit_code == 1);
  CHECK(test::contains(result.errors, "model.safetensors.partial: writing failed: File too large"));
  CHECK_FALSE(holds_a_model(fixture / "out"));
  CHECK_FALSE(fs::exists(fixture / "out" / ".saving-model"));
}

TEST_CASE("a rank that is killed in the middle of training takes all with it", "[failed_run]") {
  test::TrainingFixture fixture;
  Overrides run = options(fixture);
  run.emplace_back("max_steps=100000000");
  const auto result = kill_rank_1(fixture, run, 2, [](pid_t) {});
  INFO(result.errors);
  CHECK(result.exit_code == 128 + 9);
  CHECK(result.output.empty());
  CHECK(fixture.metrics("out").steps.size() > 1);
  CHECK_FALSE(holds_a_model(fixture / "out"));
}

TEST_CASE("a rank that is killed while others wait for its keys and values takes all with it", "[failed_run]") {
  test::TrainingFixture fixture;
  const auto rows = fixture.write("rows.jsonl", test::random_rows(52, 6, 200, 97));
  const Overrides run = {"dataset=" + rows.string(), "max_steps=100000000", "context_parallel_size=3",
                         "scheduler.policy=deepspeed"};
  const auto result = kill_rank_1(fixture, run, 3, [](pid_t victim) {
    // Stopped, it leaves the others in the hop that they are in, or in the next one.
    CHECK(::kill(victim, SIGSTOP) == 0);
    std::this_thread::sleep_for(std::chrono::milliseconds(500));
  });
  INFO(result.errors);
  CHECK(result.exit_code == 128 + 9);
  CHECK(test::contains(result.errors, "signal 9"));
  CHECK(result.output.empty());
  CHECK_FALSE(holds_a_model(fixture / "out"));
}

TEST_CASE("one rank that can't start ends all with its reason", "[failed_run]") {
  test::TrainingFixture fixture;
  const Overrides good = options(fixture);
  const auto run_pair = [&](const Overrides& changed) {
    Overrides other = good;
    other.insert(other.end(), changed.begin(), changed.end());
    std::vector<std::string> command = launch(1, {program});
    for (const std::string& word : fixture.arguments("train", "out", good)) command.push_back(word);
    command.insert(command.end(), {":", "-np", "1", program});
    for (const std::string& word : fixture.arguments("train", "out", other)) command.push_back(word);
    return test::run_command(command);
  };
  const auto model = run_pair({"model_name_or_path=" + (fixture / "nowhere").string()});
  INFO(model.errors);
  CHECK(model.exit_code == 2);
  CHECK(test::contains(model.errors, "nowhere/config.json"));
  const auto key = run_pair({"lerning_rate=1"});
  CHECK(key.exit_code == 2);
  CHECK(test::contains(key.errors, "lerning_rate: unknown key; did you mean learning_rate?"));
  CHECK_FALSE(holds_a_model(fixture / "out"));
}

TEST_CASE("a result that can't be written is no success", "[failed_run]") {
  const auto run = [](const std::string& redirection) {
    return test::run_command({"bash", "-c", program + " config --schema " + redirection});
  };
  const auto full = run("> /dev/full");
  CHECK(full.exit_code == 1);
  CHECK(test::contains(full.errors, "standard output can't be written"));
  CHECK(run(">&- 2>&-").exit_code == 0);
}
