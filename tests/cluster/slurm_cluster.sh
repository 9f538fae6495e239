# A Slurm cluster of one node on this machine, for tests that source this file: its daemons, ports, keys and state are
# its own and end with the test.

# missing_for_slurm: why the cluster can't be made here; nothing when it can.
missing_for_slurm() {
  local program missing=()
  for program in munged slurmctld slurmd sbatch srun; do
    command -v "$program" >/dev/null || missing+=("$program")
  done
  if [[ $EUID -ne 0 ]]; then
    echo "Slurm's daemons need root"
  elif [[ ${#missing[@]} -gt 0 ]]; then
    echo "not installed: ${missing[*]} (Debian: slurm-wlm, munge)"
  fi
}

# start_slurm FOLDER CPUS: fails when a daemon does not start; the logs are in FOLDER.
start_slurm() {
  slurm_folder=$1
  mkdir -p "$slurm_folder"/{state,spool}
  export SLURM_CONF=$slurm_folder/slurm.conf
  write_slurm_config "$2"
  head -c 1024 /dev/urandom >"$slurm_folder/munge.key"
  chmod 0700 "$slurm_folder" "$slurm_folder/munge.key"
  slurm_daemons=()
  # --force: the folder above may be writable for others, as /tmp is.
  start_daemon munged --foreground --force --key-file="$slurm_folder/munge.key" --socket="$slurm_folder/munge.socket" \
    --pid-file="$slurm_folder/munge.pid" --seed-file="$slurm_folder/munge.seed"
  wait_for_slurm 10 test -S "$slurm_folder/munge.socket" || return
  start_daemon slurmctld -D
  start_daemon slurmd -D
  wait_for_slurm 30 has_idle_node
}

start_daemon() {
  "$@" >>"$slurm_folder/$1.log" 2>&1 &
  slurm_daemons+=($!)
}

has_idle_node() { [[ $(sinfo --noheader --format=%T 2>/dev/null | sort -u) == idle ]]; }

# wait_for_slurm SECONDS COMMAND...: until the command succeeds.
wait_for_slurm() {
  local end=$((SECONDS + $1))
  until "${@:2}"; do
    ((SECONDS < end)) || return 1
    sleep 0.3
  done
}

free_port() { # two neighbours in the range that the system gives to nobody
  local port
  while port=$((20000 + RANDOM % 10000)); (: <>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; do :; done
  echo "$port"
}

# Nothing here needs control groups, which containers often lack. A job that is put back starts again after cred_expire.
# Jobs of the partition "urgent" throw those of "normal" out.
write_slurm_config() {
  local host
  host=$(hostname -s)
  cat >"$SLURM_CONF" <<END
ClusterName=skrull
SlurmctldHost=$host(127.0.0.1)
SlurmctldPort=$(free_port)
SlurmdPort=$(free_port)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket=$slurm_folder/munge.socket,cred_expire=5
StateSaveLocation=$slurm_folder/state
SlurmdSpoolDir=$slurm_folder/spool
SlurmctldPidFile=$slurm_folder/slurmctld.pid
SlurmdPidFile=$slurm_folder/slurmd.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerParameters=sched_interval=2,bf_interval=2
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
SlurmdParameters=config_overrides
KillWait=20
ReturnToService=2
MpiDefault=none
NodeName=node NodeHostname=$host NodeAddr=127.0.0.1 CPUs=$1 State=UNKNOWN
PartitionName=normal Nodes=node Default=YES MaxTime=INFINITE PriorityTier=1 GraceTime=20
PartitionName=urgent Nodes=node MaxTime=INFINITE PriorityTier=2 PreemptMode=OFF
END
  echo "CgroupPlugin=cgroup/v1" >"$slurm_folder/cgroup.conf"
}

# End of all jobs and daemons, whatever state they are in.
stop_slurm() {
  scancel --state=PENDING 2>/dev/null
  scancel --signal=KILL --full --state=RUNNING 2>/dev/null
  wait_for_slurm 20 has_no_jobs
  local daemon
  for daemon in "${slurm_daemons[@]}"; do kill "$daemon" 2>/dev/null; done
  wait "${slurm_daemons[@]}" 2>/dev/null
}
has_no_jobs() { [[ -z $(squeue --noheader 2>/dev/null) ]]; }
