#pragma once
// For tests of skrull_mpi_test(): the program's MPI session.

#include "skrull/comm/mpi_session.h"

namespace skrull::test {

const MpiSession& mpi_session();

}  // namespace skrull::test
