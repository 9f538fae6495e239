// Being asked to stop: by a signal to any rank, or by a file; what was done is saved, and the next start continues.
#include <fcntl.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <functional>

#include "launched_run.h"
#include "loaded_training.h"
#include "skrull/core/file.h"
#include "skrull/train/checkpoint_state.h"
#include "skrull/train/evaluation.h"
#include "skrull/train/step.h"
#include "skrull/train/stop_request.h"
#include "skrull/train/trainer_state.h"
#include "support/catch.h"
#include "training_fixture.h"

using namespace skrull;
using test::contains;
using test::joined;
using test::LaunchedRun;
using test::Overrides;
namespace fs = std::filesystem;

namespace {

struct Fixture : test::TrainingFixture {
  Overrides options = {"dataset=" + write("rows.jsonl", test::random_rows(81, 22, 40, 97)).string(),
                       "lr_scheduler_type=constant", "global_batch_size=8", "bucket_tokens=48",
                       "resume_from_checkpoint=auto"};

  LaunchedRun launch(const std::string& output, const Overrides& more, int ranks) const {
    return {*this / "", ranks, arguments("train", output, joined(options, more))};
  }
};

/// Exit status of a process of its own that runs `work`.
int status_of(const std::function<void()>& work) {
  const pid_t child = ::fork();
  if (child == 0) {
    work();
    ::_exit(0);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

}  // namespace

TEST_CASE("a signal to one rank stops all with exit code 75; the run then ends as if nothing had been", "[stop]") {
  Fixture fixture;
  struct Case {
    int ranks;
    int signalled;
    int signal;
  };
  for (const Case& a : {Case{1, 0, SIGTERM}, Case{2, 1, SIGUSR1}}) {
    const std::string output = "run-" + std::to_string(a.ranks);
    LaunchedRun run = fixture.launch(output, {"max_steps=1000000"}, a.ranks);
    test::wait_until([&] { return test::is_training(fixture / output); });
    run.send(a.signalled, a.signal);
    const test::CommandResult& result = run.wait();
    INFO(result.errors);
    CHECK(result.exit_code == 75);
    CHECK(contains(result.errors, fmt::format("stopped ({} to rank {}) after step",
                                              a.signal == SIGTERM ? "SIGTERM" : "SIGUSR1", a.signalled)));
    const auto steps = static_cast<std::int64_t>(fixture.metrics(output).steps.size());
    const fs::path checkpoint = fixture / output / fmt::format("checkpoint-{}", steps);
    CHECK(test::run_skrull({"inspect", checkpoint.string()}).exit_code == 0);

    const std::string length = fmt::format("max_steps={}", steps + 3);
    REQUIRE(fixture.run(output, joined(fixture.options, {length}), a.ranks).exit_code == 0);
    REQUIRE(fixture.run("whole-" + output, joined(fixture.options, {length}), a.ranks).exit_code == 0);
    CHECK(read_file(fixture / output / "model.safetensors") ==
          read_file(fixture / ("whole-" + output) / "model.safetensors"));
  }
}

TEST_CASE("a file STOP stops a run at any time and is gone afterwards", "[stop]") {
  Fixture fixture;
  fixture.write("run/STOP", std::string());
  const auto before = fixture.run("run", fixture.options, 2);
  INFO(before.errors);
  CHECK(before.exit_code == 75);
  CHECK(contains(before.errors, "before the first step"));
  CHECK_FALSE(fs::exists(fixture / "run" / "STOP"));

  LaunchedRun run = fixture.launch("run", {"max_steps=1000000", "save_steps=1", "save_total_limit=1"}, 2);
  test::wait_until([&] { return test::is_training(fixture / "run"); });
  fixture.write("run/STOP", std::string());
  CHECK(run.wait().exit_code == 75);
  CHECK_FALSE(fs::exists(fixture / "run" / "STOP"));
  CHECK(test::run_skrull({"inspect", (fixture / "run").string()}).exit_code == 0);
}

TEST_CASE("stopping at random moments, start-up included, loses nothing", "[stop]") {
  Fixture fixture;
  const Overrides length = {"max_steps=60", "val_size=3", "eval_steps=2", "save_steps=7"};
  REQUIRE(fixture.run("whole", joined(fixture.options, length), 2).exit_code == 0);
  int stops = 0;
  for (int attempt = 0; attempt < 4; ++attempt) {
    LaunchedRun run = fixture.launch("run", length, 2);
    run.wait_until_caught(attempt % 2, SIGUSR1);
    std::this_thread::sleep_for(std::chrono::milliseconds(180 * attempt));
    run.send(attempt % 2, SIGUSR1);
    const test::CommandResult& result = run.wait();
    INFO(result.errors);
    REQUIRE((result.exit_code == 75 || result.exit_code == 0));
    if (result.exit_code == 0) break;
    ++stops;
  }
  REQUIRE(fixture.run("run", joined(fixture.options, length), 2).exit_code == 0);
  CHECK(stops > 0);
  CHECK(read_file(fixture / "run" / "model.safetensors") == read_file(fixture / "whole" / "model.safetensors"));
  CHECK(fixture.metrics("run").without_measurements() == fixture.metrics("whole").without_measurements());
}

TEST_CASE("a second signal ends at once, one that comes twice does not", "[stop]") {
  const auto twice_after = [](useconds_t pause, int signal) {
    return status_of([=] {
      install_stop_handlers();
      ::raise(signal);
      ::usleep(pause);
      ::raise(SIGTERM);
      ::_exit(7);
    });
  };
  CHECK(twice_after(400'000, SIGTERM) == 128 + SIGTERM);
  CHECK(twice_after(400'000, SIGUSR1) == 128 + SIGTERM);
  CHECK(twice_after(1'000, SIGTERM) == 7);
}

TEST_CASE("a step that is abandoned changes nothing, and the next one is as if it had not begun", "[stop]") {
  Fixture fixture;
  const auto train = [&](bool abandon) {
    test::LoadedTraining run(fixture.config("run", fixture.options), 48, fixture / "cache");
    const StepBatches batches = test::one_rank_step(*run.store, {0, 1, 2, 3, 4, 5, 6, 7}, 48);
    REQUIRE(batches.micro_batch_count() >= 3);
    const auto step = [&](const std::function<bool()>& stop) {
      return run_step(batches, run.config, 1e-3, run.model, run.state.parameters(), run.attention, run.rank.device(),
                      run.rank.control(), stop);
    };
    if (abandon) {
      int asked = 0;
      const StepOutcome outcome = step([&] { return ++asked == 2; });  // before the third micro-batch
      CHECK(outcome.stopped);
      CHECK_FALSE(outcome.updated);
      CHECK(asked == 2);
      CHECK(run.state.parameters().updates() == 0);
    }
    return step({}).loss;
  };
  CHECK(train(true) == train(false));
}

TEST_CASE("loading a model, and a checkpoint, may be stopped before each of their parts", "[stop]") {
  Fixture fixture;
  fixture.run_here("run", joined(fixture.options, {"max_steps=2", "save_steps=1"}));
  const TrainConfig config = fixture.config("loaded", fixture.options);
  RankSession rank(config, MpiSession::alone());
  int calls = 0;
  const auto count = [&] { ++calls; };
  ModelState state(config, rank, true, true, count);
  CHECK(calls == static_cast<int>(state.parameters().table().parameters().size()));
  calls = 0;
  const fs::path checkpoint = fixture / "run" / "checkpoint-1";
  const Manifest manifest = read_manifest(checkpoint);
  const auto read = [&](const std::function<void()>& between) {
    read_owned_state(checkpoint, manifest, 0, 1, state.parameters(), rank.device(), between);
  };
  read(count);
  CHECK(calls == std::count_if(manifest.files.begin(), manifest.files.end(), holds_state));  // each is one short read

  const auto stop = [&] {
    if (++calls == 2) throw Stopped("enough");
  };
  calls = 0;
  CHECK_THROWS_AS(ModelState(config, rank, true, true, stop), Stopped);
  CHECK(calls == 2);
  calls = 0;
  CHECK_THROWS_AS(read(stop), Stopped);
  CHECK(calls == 2);
}

TEST_CASE("a start that waits for another one's token cache stops when asked", "[stop]") {
  Fixture fixture;
  REQUIRE(fixture.run("run", joined(fixture.options, {"max_steps=1"})).exit_code == 0);
  fs::path lock;
  for (const auto& entry : fs::recursive_directory_iterator(fixture / "")) {
    if (entry.path().extension() == ".lock") lock = entry.path();
  }
  REQUIRE_FALSE(lock.empty());
  fs::remove(fs::path(lock).replace_extension(".bin"));
  const int held = ::open(lock.c_str(), O_RDWR | O_CLOEXEC);
  REQUIRE(::flock(held, LOCK_EX) == 0);
  // STOP is asked for while rank 0 waits; it is removed all the same, so that the next start runs.
  LaunchedRun run = fixture.launch("waiting", {"max_steps=1"}, 2);
  run.send(1, 0);
  std::this_thread::sleep_for(std::chrono::seconds(1));
  fixture.write("waiting/STOP", std::string());
  const test::CommandResult& result = run.wait();
  ::close(held);
  INFO(result.errors);
  CHECK(result.exit_code == 75);
  CHECK(contains(result.errors, "before the first step"));
  CHECK_FALSE(fs::exists(fixture / "waiting" / "STOP"));
}

TEST_CASE("an evaluation that was cut short is done first when the run continues", "[stop]") {
  Fixture fixture;
  const Overrides options = joined(fixture.options, {"val_size=3", "eval_steps=2", "max_steps=6", "save_steps=4"});
  fixture.run_here("whole", options);
  fs::copy(fixture / "whole", fixture / "run", fs::copy_options::recursive);
  fs::remove(fixture / "run" / trainer_state_file);
  // As it is left by a stop in the evaluation after step 4.
  const fs::path checkpoint = fixture / "run" / "checkpoint-4";
  TrainerState state = read_trainer_state(checkpoint / trainer_state_file);
  state.evaluation_due = true;
  write_trainer_state(checkpoint / trainer_state_file, state);
  Manifest manifest = read_manifest(checkpoint);
  for (FileRecord& record : manifest.files) record = record_file(checkpoint, record.name);
  write_manifest(checkpoint, manifest);
  const std::string metrics = read_file(fixture / "run" / "metrics.jsonl");
  const std::size_t evaluation = metrics.find("{\"step\":4", metrics.find("{\"step\":4") + 1);
  write_file_atomically(fixture / "run" / "metrics.jsonl", metrics.substr(0, evaluation));
  fixture.run_here("run", options);
  CHECK(fixture.metrics("run").without_measurements() == fixture.metrics("whole").without_measurements());
}

TEST_CASE("an evaluation asks between micro-batches", "[stop]") {
  Fixture fixture;
  test::LoadedTraining run(fixture.config("run", fixture.options), 48, fixture / "cache");
  const Dataset data{run.store, all_samples(*run.store)};
  LoaderOptions options;
  options.cost = test::small_cost_model();
  options.bucket_tokens = 48;
  int asked = 0;
  const auto evaluate = [&](const std::function<bool()>& stop) {
    return evaluate_dataset(data, options, run.model, run.state.parameters(), run.attention, run.rank.control(), stop);
  };
  CHECK_FALSE(evaluate([&] { return ++asked == 3; }).has_value());
  CHECK(asked == 3);
  CHECK(evaluate([] { return false; })->loss == evaluate({})->loss);
}
