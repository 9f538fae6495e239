# Two hosts, alpha and beta, on this machine, for tests that source this file: network namespaces with names of their
# own, joined by a cable, sharing all folders. They are made in the test's own mount and network namespaces and end with
# them.

# missing_for_hosts: why they can't be made here; nothing when they can.
missing_for_hosts() {
  if ! command -v ip >/dev/null; then
    echo "ip is not installed (Debian: iproute2)"
  elif ! unshare --pid --fork --mount-proc --mount --net --uts true 2>/dev/null; then
    echo "namespaces are not allowed here (they need root, in containers CAP_SYS_ADMIN)"
  fi
}

# make_hosts FOLDER: call it in mount and network namespaces of the test's own; it changes /etc/hosts there.
make_hosts() {
  hosts_folder=$1
  mkdir -p "$hosts_folder" /run/netns
  mount -t tmpfs tmpfs /run/netns
  printf '127.0.0.1 localhost\n10.91.0.1 alpha\n10.91.0.2 beta\n' >"$hosts_folder/hosts"
  mount --bind "$hosts_folder/hosts" /etc/hosts
  ip netns add alpha && ip netns add beta || return
  ip link add cable netns alpha type veth peer name cable netns beta || return
  local host
  for host in alpha beta; do
    ip -n "$host" link set lo up && ip -n "$host" link set cable up || return
    ip -n "$host" address add "$(awk -v host=$host '$2 == host { print $1 }' "$hosts_folder/hosts")/24" dev cable || return
  done
  plug_cable
  write_launch_agent
}

# Open MPI calls it as it would call ssh: HOST COMMAND..., the command as words of a shell.
write_launch_agent() {
  cat >"$hosts_folder/enter_host" <<'END'
#!/usr/bin/env bash
exec ip netns exec "$1" unshare --uts bash -c 'hostname "$0" && eval "exec $*"' "$@"
END
  chmod +x "$hosts_folder/enter_host"
}

# on_host HOST COMMAND...
on_host() { "$hosts_folder/enter_host" "$1" "$(printf '%q ' "${@:2}")"; }

# mpirun_on_hosts ARGUMENT...: from alpha, one rank on each host, over TCP.
mpirun_on_hosts() {
  local network=10.91.0.0/24
  export OMPI_MCA_plm_rsh_agent=$hosts_folder/enter_host OMPI_MCA_btl=tcp,self OMPI_MCA_btl_tcp_if_include=$network \
    OMPI_MCA_oob_tcp_if_include=$network                                                                # Open MPI 4
  export PRTE_MCA_plm_ssh_agent=$hosts_folder/enter_host PRTE_MCA_prte_if_include=$network OMPI_MCA_pml=ob1 # Open MPI 5
  on_host alpha scripts/mpirun.sh -np 2 --host alpha,beta "$@"
}

# Every process of the host ends at once; the other one sees its connections end.
crash_host() { kill -KILL $(ip netns pids "$1"); }

# Without the cable hosts hear nothing of each other, not even that connections end.
unplug_cable() { ip -n alpha link set cable down; }
plug_cable() {
  ip -n alpha link set cable up
  local host
  for host in alpha beta; do # the kernel takes up to a second, and remembers that the other one did not answer
    until [[ $(ip -n "$host" link show cable) == *" state UP "* ]]; do sleep 0.1; done
    ip -n "$host" neighbour flush dev cable
  done
}
