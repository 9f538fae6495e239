// main() of the test programs that run under mpirun: MPI around the session. The first failure of a rank ends all.
#include <vector>

#include "skrull/comm/mpi_session.h"
#include "support/mpi.h"
#include "support/session.h"

namespace {
const skrull::MpiSession* current_session = nullptr;
}

const skrull::MpiSession& skrull::test::mpi_session() {
  return *current_session;
}

int main(int argc, char** argv) {
  const skrull::MpiSession session(argc, argv);
  current_session = &session;
  std::vector<char*> arguments(argv, argv + argc);
  char abort_option[] = "--abort";  // a rank that went on alone after a failure would hang in the next collective
  arguments.push_back(abort_option);
  const int failed = skrull::test::run_session(static_cast<int>(arguments.size()), arguments.data());
  if (failed != 0) session.abort(1);
  return 0;
}
