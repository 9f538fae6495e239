#pragma once
// The frame of every command that starts MPI.

#include <functional>

#include "skrull/comm/mpi_session.h"

namespace skrull::cli {

/// Runs `work` inside MPI and returns the exit code. An error that all ranks share is reported by rank 0 and everyone
/// leaves; an error of one rank alone ends all ranks.
int run_on_all_ranks(const std::function<void(const MpiSession&)>& work);

}  // namespace skrull::cli
