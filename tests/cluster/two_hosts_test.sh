#!/usr/bin/env bash
# Training on two hosts over TCP, with a shared folder: the same model as on one host; when a host is lost the run ends
# with the reason and the next start continues. The hosts are network namespaces.
set -uo pipefail
cd "$(dirname "$0")/../.." || exit
source tests/cluster/training.sh
source tests/cluster/two_hosts.sh

missing=$(missing_for_hosts)
[[ -z $missing ]] || skip "$missing"
enter_own_processes --mount --net "tests/cluster/${0##*/}"
set_up_training
make_hosts "$work/hosts" || skip "no network namespaces or veth links here (see above)"
on_host alpha mpirun --version | head -1

# start OUTPUT [OPTION...]: in the background, sets $job
start() {
  mpirun_on_hosts "$SKRULL" train "${training[@]}" output_dir="$work/$1" resume_from_checkpoint=auto "${@:2}" \
    >"$work/$1.log" 2>&1 &
  job=$!
}
has_ended() { ! kill -0 "$job" 2>/dev/null; }

# expect_exit OUTPUT CODE...
expect_exit() {
  wait_until 300 "the end of $1" has_ended
  wait "$job"
  local code=$?
  [[ " ${*:2} " == *" $code "* ]] || fail "$1 ended with exit code $code, expected ${*:2}"
}

start whole
wait_until 300 "training" has_steps whole 100
[[ -n $(ip netns pids alpha) && -n $(ip netns pids beta) ]] || fail "not both hosts have processes"
expect_exit whole 0
passed "two hosts train over TCP"

on_host alpha scripts/mpirun.sh -np 2 "$SKRULL" train "${training[@]}" output_dir="$work/one_host" >"$work/one_host.log" 2>&1
expect_same_model one_host
passed "the same model as on one host"

# expect_failed_and_continued OUTPUT: nothing is left of the run, which failed, on either host; the next start ends it.
expect_failed_and_continued() {
  wait_until 300 "the end of $1" has_ended
  wait "$job" && fail "$1 lost a host and ended with exit code 0"
  wait_until 300 "the end of all ranks of $1" hosts_are_empty
  plug_cable
  start "$1"
  expect_exit "$1" 0
  expect_log "$1" "continuing after step"
  expect_same_model "$1"
}
hosts_are_empty() { [[ -z $(ip netns pids alpha)$(ip netns pids beta) ]]; }

start crashed
wait_until 300 "training" has_steps crashed 100
crash_host beta
wait_until 300 "the end of crashed" has_ended
expect_log crashed "has lost communication with a remote daemon"
expect_failed_and_continued crashed
passed "a host crashes: mpirun ends with the reason, the next start continues, the same model"

start headless
wait_until 300 "training" has_steps headless 100
crash_host alpha
expect_failed_and_continued headless
passed "the host of mpirun crashes: the other one ends too, the next start continues, the same model"

# Only silence tells of a broken link: mpirun asks for signs of life (see docs/checkpoints.md), ranks have timeout_seconds.
export OMPI_MCA_oob_tcp_keepalive_time=4 OMPI_MCA_oob_tcp_keepalive_intvl=2 OMPI_MCA_oob_tcp_keepalive_probes=2
start unplugged timeout_seconds=60
wait_until 300 "training" has_steps unplugged 100
unplug_cable
wait_until 300 "the end of unplugged" has_ended
expect_log unplugged "has lost communication with a remote daemon"
expect_failed_and_continued unplugged
passed "the link breaks: both hosts end, the next start continues, the same model"
