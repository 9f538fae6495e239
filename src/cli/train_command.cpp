// skrull train and skrull eval: the commands that run on all ranks.

#include <cmath>
#include <cstdio>
#include <string>
#include <vector>

#include "commands.h"
#include "run_on_all_ranks.h"
#include "skrull/comm/communicator.h"
#include "skrull/config/config_docs.h"
#include "skrull/config/config_parser.h"
#include "skrull/core/json.h"
#include "skrull/train/stop_request.h"
#include "skrull/train/trainer.h"

namespace skrull::cli {
namespace {

/// Arguments that are wrong are wrong on every rank: reported once.
TrainConfig parse_on_all_ranks(const MpiSession& session, const Arguments& arguments,
                               const std::vector<std::string>& required) {
  const auto world = session.world();
  ControlChannel control(*world);
  return control.run_together([&] { return parse_config(read_arguments(arguments), required); });
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
  install_stop_handlers();  // before MPI: a signal may come at any moment
  return run_on_all_ranks([&](const MpiSession& session) {
    const TrainConfig config = parse_on_all_ranks(session, arguments, required_for_training());
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
        "the model on eval_dataset, else on the val_size rows of dataset, else on all of dataset. The keys are those "
        "of skrull train.\n\n%s",
        config_help().c_str());
    return static_cast<int>(ExitCode::done);
  }
  return run_on_all_ranks([&](const MpiSession& session) {
    const TrainConfig config = parse_on_all_ranks(session, arguments, {"model_name_or_path"});
    const EvalResult result = skrull::evaluate(config, session);
    print_result(session,
                 {{"loss", number(result.loss)}, {"perplexity", number(result.perplexity)}, {"tokens", result.tokens}});
  });
}

}  // namespace skrull::cli
