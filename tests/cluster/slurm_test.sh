#!/usr/bin/env bash
# The batch scripts of scripts/slurm on a real Slurm: a job that is signalled, preempted, or loses a rank in the middle
# of its training ends with the model of one that was left alone. Starts a cluster of this machine and ends it.
set -uo pipefail
cd "$(dirname "$0")/../.." || exit
source tests/cluster/training.sh
source tests/cluster/slurm_cluster.sh

missing=$(missing_for_slurm)
[[ -z $missing ]] || skip "$missing"
enter_own_processes "tests/cluster/${0##*/}"
tear_down() { stop_slurm; }
set_up_training
node_cpus=4
start_slurm "$work/slurm" $node_cpus || {
  tail -n 20 "$work"/slurm/*.log
  skip "Slurm's daemons do not come up here (see above)"
}
echo "$(srun --version), $(mpirun --version | head -1)"

# submit OUTPUT [OPTION OF SBATCH...]: sets $job
submit() {
  job=$(sbatch --parsable --cpus-per-task=$((node_cpus / 2)) --output="$work/$1.log" "${@:2}" \
    scripts/slurm/one_node.sbatch "${training[@]}" output_dir="$work/$1") || fail "sbatch refused $1"
}
field() { scontrol --oneliner show job "$job" | grep -o " $1=[^ ]*" | cut -d= -f2; }
is_over() { [[ $(field JobState) =~ ^(COMPLETED|FAILED|CANCELLED|TIMEOUT|NODE_FAIL|BOOT_FAIL|OUT_OF_MEMORY|DEADLINE)$ ]]; }

# expect_end OUTPUT STATE RESTARTS
expect_end() {
  wait_until 300 "the end of $1" is_over
  [[ $(field JobState) == "$2" ]] || fail "job $1 is $(field JobState), expected $2"
  [[ $(field Restarts) == "$3" ]] || fail "job $1 was started again $(field Restarts) times, expected $3"
}

submit whole
expect_end whole COMPLETED 0
passed "a job of two tasks over PMIx"

submit signalled
wait_until 300 "training" has_steps signalled 100
scancel --signal=TERM "$job"
expect_end signalled COMPLETED 1
expect_log signalled "stopped (SIGTERM to rank"
expect_log signalled "the job is put back into the queue"
expect_log signalled "continuing after step"
expect_same_model signalled
passed "a signal to the tasks: exit code 75, put back, finished, the same model"

submit preempted
wait_until 300 "training" has_steps preempted 100
sbatch --quiet --partition=urgent --ntasks=$node_cpus --output=/dev/null --wrap="sleep 1" || fail "sbatch refused the urgent job"
expect_end preempted COMPLETED 1
expect_log preempted "stopped (SIGTERM to rank"
expect_log preempted "continuing after step"
expect_same_model preempted
passed "preempted by a job of higher priority: saved, put back, finished, the same model"

submit killed
wait_until 300 "training" has_steps killed 100
kill -KILL "$(pgrep -f "^$SKRULL train .*output_dir=$work/killed" | tail -1)"
expect_end killed FAILED 0
submit killed --open-mode=append
expect_end killed COMPLETED 0
expect_log killed "continuing after step"
expect_same_model killed
passed "a rank is killed: the job fails; submitted again it finishes, the same model"

srun --ntasks=2 --mpi=none "$SKRULL" train "${training[@]}" output_dir="$work/alone" >"$work/alone.log" 2>&1
code=$?
[[ $code -eq 1 ]] || fail "without MPI support srun ended with $code, expected 1"
expect_log alone "the launcher announces 2 ranks, but MPI came up with this one alone"
[[ ! -e $work/alone ]] || fail "a rank that came up alone made its output folder"
passed "srun --mpi=none: refused with the reason"
