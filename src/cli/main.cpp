// The program: finds the sub-command, runs it, turns errors into messages and exit codes.

#include <exception>
#include <new>
#include <string>
#include <vector>

#include "commands.h"
#include "skrull/core/error.h"
#include "skrull/core/log.h"

int main(int argc, char** argv) {
  using namespace skrull;
  try {
    return cli::run(argc, argv);
  } catch (const Error& error) {
    log::error("{}", error.what());
    return static_cast<int>(error.exit_code());
  } catch (const std::bad_alloc&) {
    log::error("out of memory; use a smaller bucket_tokens, cutoff_len or model");
  } catch (const std::exception& error) {
    log::error("unexpected: {}", error.what());
  }
  return static_cast<int>(ExitCode::run_failed);
}
