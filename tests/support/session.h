#pragma once

namespace skrull::test {

/// Runs the Catch2 session of this program. Every test program has a main(): tests/support/main.cpp, or one that starts
/// MPI around this call.
int run_session(int argc, char** argv);

}  // namespace skrull::test
