// The program: finds the sub-command, runs it, turns errors into messages and exit codes.

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <exception>

#include "commands.h"
#include "skrull/core/error.h"
#include "skrull/core/explain.h"
#include "skrull/core/log.h"

namespace {

/// A file that is opened later must not get the number of a standard stream that the caller has closed.
void open_standard_streams() {
  for (int descriptor = STDIN_FILENO; descriptor <= STDERR_FILENO; ++descriptor) {
    if (::fcntl(descriptor, F_GETFD) == -1) static_cast<void>(::open("/dev/null", O_RDWR));
  }
}

/// Results that did not arrive are no success.
void check_standard_output() {
  errno = 0;
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return;
  skrull::throw_run_failure("standard output can't be written{}{}", errno != 0 ? ": " : "",
                            errno != 0 ? std::strerror(errno) : "");
}

}  // namespace

int main(int argc, char** argv) {
  using namespace skrull;
  open_standard_streams();
  std::signal(SIGXFSZ, SIG_IGN);  // a file beyond its limit is a failed write, with a message, not a sudden end
  try {
    const int exit_code = cli::run(argc, argv);
    check_standard_output();
    return exit_code;
  } catch (const std::exception& error) {
    log::error("{}", explain(error));
    return static_cast<int>(exit_code_of(error));
  }
}
