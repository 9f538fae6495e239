#!/usr/bin/env bash
# What the batch scripts here have in common: trains with srun, one rank for each task of the job, and puts the job
# back into the queue when the run was stopped and saved. Arguments are those of `skrull train`.
set -u

# --signal without "B:" goes to the tasks of the step: the trainer saves and ends with 75, and this script goes on
# below. Preemption may tell this script too, which must outlive the step; the trap does not reach the step.
trap : TERM USR1
# srun takes the CPUs of a task from here since Slurm 22.05; without it every task would get one.
export SRUN_CPUS_PER_TASK=${SLURM_CPUS_PER_TASK:-1}
# --mpi: what the MPI library can talk to; `srun --mpi=list` says what Slurm has. Open MPI needs pmix.
# --wait: a task that dies must not leave the others waiting. Not --kill-on-bad-exit, which would turn 75 into a kill.
srun --mpi="${SLURM_MPI_TYPE:-pmix}" --wait=60 "${SKRULL:-build/skrull}" train "$@" resume_from_checkpoint=auto
code=$?
# 75: stopped by a signal after saving. A preempted job is put back by Slurm itself; one at its time limit is not.
if [[ $code -eq 75 ]]; then
  echo "stopped after saving; the job is put back into the queue"
  scontrol requeue "$SLURM_JOB_ID" || exit 75
fi
exit "$code"
