// How a run ends when ranks fail: exit codes of mpirun, messages, and that nobody hangs.
#include <cstdlib>

#include "support/catch.h"
#include "support/support.h"

using namespace skrull;

namespace {

const std::string program = std::string(SKRULL_BINARY_DIR) + "/tests/comm_failing_program";

int occurrences(const std::string& text, const std::string& part) {
  int count = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

}  // namespace

TEST_CASE("without a failure mpirun ends with 0", "[failure]") {
  const test::CommandResult result = test::run_under_mpi(3, {program, "none"});
  CHECK(result.exit_code == 0);
  CHECK(result.output == "done with 3\n");
}

TEST_CASE("ranks that fail together report once and end with the right code", "[failure]") {
  const test::CommandResult invalid = test::run_under_mpi(3, {program, "together-invalid"});
  CHECK(invalid.exit_code == 2);
  CHECK(occurrences(invalid.errors, "row 7 is wrong") == 1);
  const test::CommandResult failed = test::run_under_mpi(2, {program, "together-failed"});
  CHECK(failed.exit_code == 1);
  CHECK(occurrences(failed.errors, "disk full") == 1);
}

TEST_CASE("a rank that fails alone ends all with its code", "[failure]") {
  const test::CommandResult invalid = test::run_under_mpi(3, {program, "alone-invalid"});
  CHECK(invalid.exit_code == 2);
  CHECK(occurrences(invalid.errors, "[rank 2] error: row 7 is wrong") == 1);
  CHECK(test::run_under_mpi(3, {program, "alone-failed"}).exit_code == 1);
  const test::CommandResult in_flight = test::run_under_mpi(2, {program, "alone-in-flight"});
  CHECK(in_flight.exit_code == 1);
  CHECK(occurrences(in_flight.errors, "[rank 1] error: disk full") == 1);
}

TEST_CASE("a rank that is killed or just ends takes the others with it", "[failure]") {
  const test::CommandResult killed = test::run_under_mpi(3, {program, "killed"});
  CHECK(killed.exit_code == 128 + 9);
  CHECK(killed.output.empty());
  const test::CommandResult exits = test::run_under_mpi(2, {program, "exits"});
  CHECK(exits.exit_code == 1);
  CHECK(exits.output.empty());
}

TEST_CASE("one rank needs no launcher", "[failure]") {
  CHECK(test::run_command({program, "none"}).output == "done with 1\n");
  CHECK(test::run_command({program, "alone-invalid"}).exit_code == 2);
  CHECK(test::run_command({program, "together-failed"}).exit_code == 1);
}

TEST_CASE("srun without the right --mpi is refused with the remedy", "[failure]") {
  for (const std::vector<std::string>& task :
       {std::vector<std::string>{"SLURM_STEP_NUM_TASKS=4", "SLURM_PROCID=1", "SLURM_NTASKS=4"},
        std::vector<std::string>{"SLURM_PROCID=0", "SLURM_NTASKS=4"}}) {
    std::vector<std::string> command = {"env"};
    command.insert(command.end(), task.begin(), task.end());
    command.insert(command.end(), {program, "none"});
    const test::CommandResult result = test::run_command(command);
    CHECK(result.exit_code == 1);
    CHECK(result.errors.find("announces 4 ranks") != std::string::npos);
    CHECK(result.errors.find("srun --mpi=pmix") != std::string::npos);
    CHECK(result.errors.find("srun --mpi=pmi2") != std::string::npos);
  }
  // A batch script's own process, one task of one, and mpirun within a Slurm job are all fine.
  CHECK(test::run_command({"env", "ENVIRONMENT=BATCH", "SLURM_PROCID=0", "SLURM_NTASKS=4", program}).exit_code == 0);
  CHECK(test::run_command({"env", "SLURM_STEP_NUM_TASKS=1", "SLURM_PROCID=0", "SLURM_NTASKS=4", program}).exit_code ==
        0);
  CHECK(test::run_under_mpi(1, {"env", "SLURM_STEP_NUM_TASKS=4", "SLURM_PROCID=0", "SLURM_NTASKS=4", program})
            .exit_code == 0);
}
