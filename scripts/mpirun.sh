#!/usr/bin/env bash
# mpirun that also works as root (containers) and with more ranks than cores: scripts/mpirun.sh -np 4 build/skrull train ...
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export OMPI_MCA_rmaps_base_oversubscribe=1                  # Open MPI 4
export PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe # Open MPI 5
exec mpirun "$@"
