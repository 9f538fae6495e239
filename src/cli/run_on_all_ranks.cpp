#include "run_on_all_ranks.h"

#include "skrull/comm/communicator.h"
#include "skrull/core/explain.h"
#include "skrull/core/log.h"

namespace skrull::cli {

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
    if (!together || session.rank() == 0) log::error("{}", explain(error));
    if (!together) session.abort(code);
    return code;
  }
}

}  // namespace skrull::cli
