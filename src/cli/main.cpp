// The program: finds the sub-command, runs it, turns errors into messages and exit codes.

#include <csignal>
#include <exception>

#include "commands.h"
#include "skrull/core/explain.h"
#include "skrull/core/log.h"

int main(int argc, char** argv) {
  using namespace skrull;
  std::signal(SIGXFSZ, SIG_IGN);  // a file beyond its limit is a failed write, with a message, not a sudden end
  try {
    return cli::run(argc, argv);
  } catch (const std::exception& error) {
    log::error("{}", explain(error));
    return static_cast<int>(exit_code_of(error));
  }
}
