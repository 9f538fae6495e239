// skrull train and skrull eval: the commands that run on all ranks.

#include <chrono>
#include <cmath>
#include <cstdio>
#include <functional>
#include <thread>

#include "commands.h"
#include "skrull/comm/mpi_session.h"
#include "skrull/config/config_docs.h"
#include "skrull/config/config_parser.h"
#include "skrull/core/json.h"
#include "skrull/core/log.h"
#include "skrull/train/trainer.h"

namespace skrull::cli {
namespace {

/// How long a rank waits with an error of its own: most errors (a bad config, say) meet every rank at the same place,
/// and then rank 0 reports for all and ends them.
constexpr std::chrono::seconds patience{2};

/// Runs `work` inside MPI. An error that the ranks agreed on is reported by rank 0 and everyone leaves; any other ends
/// all ranks at once.
int run_on_all_ranks(const std::function<void(const MpiSession&)>& work) {
  int argc = 0;
  char** argv = nullptr;
  const MpiSession session(argc, argv);
  log::set_rank(session.rank());
  int code = static_cast<int>(ExitCode::run_failed);
  try {
    work(session);
    return static_cast<int>(ExitCode::done);
  } catch (const std::exception& error) {
    if (const auto* own = dynamic_cast<const Error*>(&error)) code = static_cast<int>(own->exit_code());
    const bool together = failed_together(error) || session.size() == 1;
    if (!together && session.rank() != 0) std::this_thread::sleep_for(patience);
    if (!together || session.rank() == 0) log::error("{}", error.what());
    if (!together) session.abort(code);
  }
  return code;
}

bool wants_help(const Arguments& arguments) {
  for (const std::string& argument : arguments) {
    if (argument == "--help" || argument == "-h") return true;
  }
  return false;
}

OrderedJson number(double value) {
  return std::isfinite(value) ? OrderedJson(value) : OrderedJson(nullptr);
}

void print_result(const MpiSession& session, const OrderedJson& result) {
  if (session.rank() == 0) std::printf("%s\n", result.dump().c_str());
}

}  // namespace

int train(const Arguments& arguments) {
  if (wants_help(arguments)) {
    std::printf("usage: skrull train CONFIG.json [key=value ...] [--key value ...]\n\n%s", config_help().c_str());
    return static_cast<int>(ExitCode::done);
  }
  return run_on_all_ranks([&](const MpiSession& session) {
    const TrainConfig config = parse_config(read_arguments(arguments));
    const TrainSummary summary = skrull::train(config, session);
    print_result(session, {{"output_dir", config.output_dir.string()},
                           {"steps", summary.steps},
                           {"skipped_steps", summary.skipped_steps},
                           {"loss", number(summary.final_loss)},
                           {"eval_loss", number(summary.eval_loss)},
                           {"tokens", summary.tokens},
                           {"seconds", number(summary.train_seconds)}});
  });
}

int evaluate(const Arguments& arguments) {
  if (wants_help(arguments)) {
    std::printf(
        "usage: skrull eval CONFIG.json [key=value ...] [--key value ...]\n\nPrints the mean loss and perplexity of "
        "the model on "
        "eval_dataset (else on dataset). The keys are those of skrull train.\n\n%s",
        config_help().c_str());
    return static_cast<int>(ExitCode::done);
  }
  return run_on_all_ranks([&](const MpiSession& session) {
    const TrainConfig config = parse_config(read_arguments(arguments), {"model_name_or_path"});
    const EvalResult result = skrull::evaluate(config, session);
    print_result(session,
                 {{"loss", number(result.loss)}, {"perplexity", number(result.perplexity)}, {"tokens", result.tokens}});
  });
}

}  // namespace skrull::cli
