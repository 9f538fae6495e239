#include "run_on_all_ranks.h"

#include <chrono>
#include <thread>

#include "skrull/comm/communicator.h"
#include "skrull/core/explain.h"
#include "skrull/core/log.h"

namespace skrull::cli {
namespace {

/// How long a rank waits with an error of its own: a lack of memory, say, often meets every rank at the same place, and
/// then rank 0 reports for all and ends them.
constexpr std::chrono::seconds patience{2};

bool error_is_stop(const std::exception& error) {
  return exit_code_of(error) == ExitCode::stopped_by_signal;
}

}  // namespace

int run_on_all_ranks(const std::function<void(const MpiSession&)>& work) {
  int argc = 0;
  char** argv = nullptr;
  const MpiSession session(argc, argv);
  log::set_rank(session.rank());
  try {
    work(session);
    return static_cast<int>(ExitCode::done);
  } catch (const std::exception& error) {
    const auto code = static_cast<int>(exit_code_of(error));
    const bool together = failed_together(error) || session.size() == 1;
    if (!together && session.rank() != 0) std::this_thread::sleep_for(patience);
    if (error_is_stop(error)) {
      log::info("{}", explain(error));
    } else if (!together || session.rank() == 0) {
      log::error("{}", explain(error));
    }
    if (!together) session.abort(code);
    return code;
  }
}

}  // namespace skrull::cli
