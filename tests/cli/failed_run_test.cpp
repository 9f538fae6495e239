// Runs that fail on the way: a full disk, a killed rank, ranks that disagree. Non-zero exit code, a reason, no hang.
#include <sys/mount.h>
#include <unistd.h>

#include <cstdlib>
#include <thread>

#include "skrull/core/file.h"
#include "support/catch.h"
#include "train/launched_run.h"
#include "train/training_fixture.h"

using namespace skrull;
using test::Overrides;
namespace fs = std::filesystem;

namespace {

const std::string program = std::string(SKRULL_BINARY_DIR) + "/skrull";

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
  void resize(const char* size) const { ::mount("tmpfs", folder_.c_str(), "tmpfs", MS_REMOUNT, size); }

 private:
  fs::path folder_;
  bool mounted_ = false;
};

bool holds_a_model(const fs::path& folder) {
  return fs::exists(folder / "model.safetensors") || fs::exists(folder / "config.json");
}

}  // namespace

TEST_CASE("a full disk while saving is an error; the checkpoint before it stays, and the run continues there",
          "[failed_run]") {
  test::TrainingFixture fixture;
  // The model takes 84 kB, the moments twice that: one checkpoint fits, the next does not.
  const SmallDisk disk(fixture / "disk", "size=400k");
  if (!disk.mounted()) return;
  const Overrides run = test::joined(options(fixture), {"max_steps=4", "save_steps=1", "learning_rate=0.01"});
  for (const int ranks : {0, 2}) {
    const auto result = fixture.run("disk", test::joined(run, {"overwrite_output_dir=true"}), ranks);
    INFO(result.errors);
    CHECK(result.exit_code == 1);
    CHECK(test::contains(result.errors, "checkpoint-2 was not saved: "));
    CHECK(test::contains(result.errors, "the disk is too full: "));
    CHECK(test::contains(result.errors, "/disk/checkpoint-1 is complete and unchanged: mend the cause and continue"));
    CHECK(result.output.empty());
    CHECK(test::run_skrull({"inspect", (fixture / "disk").string()}).exit_code == 0);
    CHECK_FALSE(fs::exists(fixture / "disk" / ".saving-checkpoint-2"));
    CHECK_FALSE(holds_a_model(fixture / "disk"));
    CHECK(fixture.metrics("disk").steps.size() == 2);
  }
  disk.resize("size=4m");
  REQUIRE(fixture.run("disk", test::joined(run, {"resume_from_checkpoint=auto"}), 2).exit_code == 0);
  REQUIRE(fixture.run("elsewhere", run, 2).exit_code == 0);
  CHECK(read_file(fixture / "disk" / "model.safetensors") == read_file(fixture / "elsewhere" / "model.safetensors"));
}

TEST_CASE("a write that fails on one rank fails the checkpoint on all, and leaves nothing", "[failed_run]") {
  test::TrainingFixture fixture;
  const Overrides run = test::joined(options(fixture), {"save_steps=1"});
  // A rank's part of the moments takes 79 kB.
  const std::vector<std::string> limited = {"bash", "-c",
                                            "if [ $OMPI_COMM_WORLD_RANK = 1 ]; then ulimit -f 60; fi; exec " +
                                                quoted({program}) + quoted(fixture.arguments("train", "out", run))};
  const auto result = test::run_command(test::launch_of({limited, limited}));
  INFO(result.errors);
  CHECK(result.exit_code == 1);
  CHECK(test::contains(result.errors, "checkpoint-1 was not saved: "));
  CHECK(test::contains(result.errors, "optimizer-00002-of-00002.safetensors: writing failed: File too large"));
  CHECK(test::contains(result.errors, "There is no earlier checkpoint"));
  CHECK_FALSE(fs::exists(fixture / "out" / "checkpoint-1"));
  CHECK_FALSE(fs::exists(fixture / "out" / ".saving-checkpoint-1"));
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
  const Overrides run = test::joined(options(fixture), {"max_steps=100000000"});
  test::LaunchedRun job(fixture / "", 2, fixture.arguments("train", "out", run));
  test::wait_until([&] { return test::is_training(fixture / "out"); });
  job.send(1, SIGKILL);
  const test::CommandResult& result = job.wait();
  INFO(result.errors);
  CHECK(result.exit_code == 128 + 9);
  CHECK(result.output.empty());
  CHECK(fixture.metrics("out").steps.size() > 1);
  CHECK_FALSE(holds_a_model(fixture / "out"));
}

TEST_CASE("a rank that hangs ends all after timeout_seconds, with its number, the operation and the step",
          "[failed_run]") {
  test::TrainingFixture fixture;
  for (const int hanging : {0, 2}) {
    const std::string output = "out-" + std::to_string(hanging);
    const Overrides run = test::joined(options(fixture), {"max_steps=100000000", "ddp_timeout=5"});
    test::LaunchedRun job(fixture / "", 3, fixture.arguments("train", output, run));
    test::wait_until([&] { return test::is_training(fixture / output); });
    job.send(hanging, SIGSTOP);
    const test::CommandResult& result = job.wait();
    INFO(result.errors);
    CHECK(result.exit_code == 1);
    CHECK(test::contains(result.errors, fmt::format("rank {} did not come within 5 s (timeout_seconds)", hanging)));
    const auto last = static_cast<std::int64_t>(fixture.metrics(output).steps.size());
    CHECK((test::contains(result.errors, fmt::format(" (step {}): ", last)) ||
           test::contains(result.errors, fmt::format(" (step {}): ", last + 1))));
    CHECK(test::contains(result.errors, hanging == 0 ? "arrived: 1, 2" : "arrived: 0, 1"));
  }
}

TEST_CASE("a rank that is killed while others wait for its keys and values takes all with it", "[failed_run]") {
  test::TrainingFixture fixture;
  const auto rows = fixture.write("rows.jsonl", test::random_rows(52, 6, 200, 97));
  const Overrides run = {"dataset=" + rows.string(), "max_steps=100000000", "context_parallel_size=3",
                         "scheduler.policy=deepspeed"};
  test::LaunchedRun job(fixture / "", 3, fixture.arguments("train", "out", run));
  test::wait_until([&] { return test::is_training(fixture / "out"); });
  // Stopped, it leaves the others in the hop that they are in, or in the next one.
  job.send(1, SIGSTOP);
  std::this_thread::sleep_for(std::chrono::milliseconds(500));
  job.send(1, SIGKILL);
  const test::CommandResult& result = job.wait();
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
    const auto command = [&](const Overrides& overrides) {
      return test::joined({program}, fixture.arguments("train", "out", overrides));
    };
    return test::run_command(test::launch_of({command(good), command(other)}));
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
