#include "skrull/train/trainer.h"

#include <array>
#include <cmath>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <utility>

#include "report.h"
#include "skrull/core/error.h"
#include "skrull/core/log.h"
#include "skrull/core/stopwatch.h"
#include "skrull/core/text.h"
#include "skrull/train/datasets.h"
#include "skrull/train/evaluation.h"
#include "skrull/train/learning_rate.h"
#include "skrull/train/metrics.h"
#include "skrull/train/model_state.h"
#include "skrull/train/rank_session.h"
#include "skrull/train/run_folder.h"
#include "skrull/train/scheduling.h"
#include "skrull/train/step.h"
#include "skrull/train/step_planner.h"
#include "skrull/train/step_trace.h"

namespace skrull {
namespace {

/// One run, from start-up to the final save. The constructor is the start-up; every rank goes through the same stages.
class TrainingRun {
 public:
  TrainingRun(const TrainConfig& config, const MpiSession& session);
  TrainSummary run();

 private:
  void plan_steps(std::int64_t tokens_in_memory);
  std::int64_t saved_bytes() const;
  void report_start();
  StepMetrics run_one_step(std::int64_t step);
  void add_times(const StepTimes& times, StepMetrics& metrics);
  void count_skipped(const StepMetrics& metrics);
  void evaluate_after(std::int64_t step);
  void save(const std::function<void(const WriteFolder&)>& place);
  double epochs_after(std::int64_t steps) const {
    return static_cast<double>(steps) / static_cast<double>(steps_per_epoch_);
  }

  const TrainConfig& config_;
  RunFolder folder_;
  RankSession rank_;
  ControlChannel& control_;
  std::unique_ptr<TextEncoder> encoder_;
  std::unique_ptr<ModelState> model_state_;
  Datasets data_;
  LoaderOptions loader_options_;
  std::unique_ptr<StepPlanner> planner_;
  std::int64_t steps_per_epoch_ = 1;
  LearningRatePlan learning_rates_;
  std::unique_ptr<Transformer> model_;
  std::unique_ptr<MicroBatchAttention> attention_;
  std::unique_ptr<MetricsFile> metrics_file_;  ///< rank 0
  std::optional<StepTrace> trace_;
  double peak_flops_ = 0;  ///< of all ranks together
  EndOfTurn end_of_turn_;

  Stopwatch loop_watch_;
  std::int64_t skipped_in_a_row_ = 0;
  TrainSummary summary_;
};

TrainingRun::TrainingRun(const TrainConfig& config, const MpiSession& session)
    : config_(config), folder_(config.output_dir), rank_(config, session), control_(rank_.control()) {
  control_.run_together([&] {
    if (control_.rank() == 0) folder_.check(config_);
    encoder_ = load_text_encoder(config_);
    model_state_ = std::make_unique<ModelState>(config_, rank_, true);
  });
  const std::int64_t vocab_size = model_state_->config().vocab_size;
  data_ = load_datasets(config_, encoder_.get(), vocab_size, folder_.cache_folder(), control_);
  // The rank with the least memory decides.
  const std::int64_t tokens_in_memory = -control_.max(-tokens_that_fit(config_, model_state_->config(), rank_));
  control_.run_together([&] {
    plan_steps(tokens_in_memory);
    const TransformerOptions options = transformer_options(config_, loader_options_.bucket_tokens, true);
    model_ = std::make_unique<Transformer>(model_state_->config(), options, rank_.device());
    attention_ = make_attention(model_state_->config(), options, rank_);
    if (control_.rank() == 0) {
      end_of_turn_ = find_end_of_turn(data_.train, tokenizer_folder(config_));
      folder_.begin(config_);
      report_disk_space(config_.output_dir, saved_bytes());
      log::add_file(folder_.log_file());
      metrics_file_ = std::make_unique<MetricsFile>(folder_.metrics_file());
    }
  });
  peak_flops_ = control_.sum(rank_.device().peak_flops(config_.compute_dtype));
  report_start();
}

/// The loader, the number of steps and the learning rates.
void TrainingRun::plan_steps(std::int64_t tokens_in_memory) {
  const std::int64_t global_batch_size = resolve_global_batch_size(config_, rank_.grid().data_parallel);
  loader_options_.topology = rank_.topology();
  loader_options_.rank = rank_.grid().rank();
  loader_options_.policy = std::string(name_of(config_.scheduler.policy));
  loader_options_.cost = make_cost_model(config_, model_state_->config());
  loader_options_.search = search_options(config_);
  loader_options_.search.keep_ahead = true;
  loader_options_.bucket_tokens =
      resolve_bucket_tokens(config_, data_, rank_.grid().context_parallel, global_batch_size, tokens_in_memory);
  loader_options_.global_batch_size = global_batch_size;
  loader_options_.order = config_.data_order;
  loader_options_.weighting = weighting_of(config_.loss_reduction);
  loader_options_.seed = static_cast<std::uint64_t>(config_.seed);
  for (const Dataset* dataset : {&data_.train, &data_.eval}) {
    if (dataset->empty()) continue;
    check_bucket_tokens(*dataset->store, dataset->samples, loader_options_.bucket_tokens,
                        rank_.grid().context_parallel);
  }
  steps_per_epoch_ = steps_per_epoch(data_.train.size(), global_batch_size);
  summary_.steps = total_steps(steps_per_epoch_, config_.num_train_epochs, config_.max_steps);
  trace_.emplace(config_, folder_.trace_file(), summary_.steps, rank_);
  planner_ = std::make_unique<StepPlanner>(data_.train, loader_options_, summary_.steps, control_);
  learning_rates_ = plan_learning_rate(config_, summary_.steps);
}

/// About what the saved model takes on the disk.
std::int64_t TrainingRun::saved_bytes() const {
  const Qwen2Config& model = model_state_->config();
  return model.parameter_count() * size_of(config_.save_dtype.value_or(model.stored_dtype));
}

void TrainingRun::report_start() {
  const RankGrid& grid = rank_.grid();
  log::info("ranks: {} (data parallel {} x context parallel {}), {}", grid.world_size(), grid.data_parallel,
            grid.context_parallel, rank_.cpu_share());
  log::info("device: {}, {:.0f} GFLOP/s measured in {}", rank_.device().description(),
            peak_flops_ / grid.world_size() / 1e9, name_of(config_.compute_dtype));
  report_model(model_state_->config(), config_);
  const std::int64_t positions = model_state_->config().max_position_embeddings;
  report_rows("data", *data_.train.store, config_);
  report_lengths("data", data_.train, positions);
  report_first_sample("data", data_.train, encoder_.get());
  if (!data_.eval.empty()) {
    if (data_.eval.store != data_.train.store) report_rows("evaluation data", *data_.eval.store, config_);
    report_lengths("evaluation data", data_.eval, positions);
  }
  log::info("plan: {} steps of {} sequences ({} per epoch), policy {}, at most {} tokens per micro-batch",
            format_count(summary_.steps), loader_options_.global_batch_size, steps_per_epoch_, loader_options_.policy,
            format_count(loader_options_.bucket_tokens));
  log::info("learning rate: {}, at most {:.2e}, {} warm-up steps; gradient clipping {}",
            name_of(learning_rates_.schedule), learning_rates_.peak, learning_rates_.warmup_steps,
            config_.max_grad_norm > 0 ? fmt::format("at norm {}", config_.max_grad_norm) : "off");
  report_memory(rank_.device());
}

TrainSummary TrainingRun::run() {
  loop_watch_ = {};
  summary_.final_loss = summary_.eval_loss = std::numeric_limits<double>::quiet_NaN();
  for (std::int64_t step = 1; step <= summary_.steps; ++step) {
    const StepMetrics metrics = run_one_step(step);
    if (metrics_file_) metrics_file_->append(metrics);
    const bool last = step == summary_.steps;
    const std::string line = describe(metrics, summary_.steps);
    if (last || step == 1 || step % config_.logging_steps == 0) {
      log::info_line(line);
    } else {
      log::progress(line);
    }
    count_skipped(metrics);
    if (!data_.eval.empty() && (last || (config_.eval_steps > 0 && step % config_.eval_steps == 0))) {
      evaluate_after(step);
    }
    if (!last && config_.save_steps > 0 && step % config_.save_steps == 0) {
      save([&](const WriteFolder& write) { folder_.save_checkpoint(step, config_.save_total_limit, write); });
      log::info("saved {}", folder_.checkpoint_folder(step).string());
    }
  }
  save([&](const WriteFolder& write) { folder_.save_final(write); });
  log::info("saved the model to {}", folder_.path().string());
  summary_.train_seconds = loop_watch_.seconds();
  return summary_;
}

StepMetrics TrainingRun::run_one_step(std::int64_t step) {
  const PlannedStep planned = planner_->step(step - 1);
  const StepBatches& batches = planned.batches;
  StepMetrics metrics;
  metrics.step = step;
  metrics.epoch = epochs_after(step);
  metrics.learning_rate = learning_rate_at(learning_rates_, step - 1);
  trace_->begin_step(step);
  const StepOutcome outcome =
      run_step(batches, config_, metrics.learning_rate, *model_, model_state_->parameters(), *attention_, rank_);
  trace_->end_step(step, outcome.spans, batches);
  metrics.loss = outcome.loss;
  metrics.grad_norm = outcome.grad_norm;
  metrics.skipped = !outcome.updated;
  if (metrics.skipped) ++summary_.skipped_steps;
  metrics.skipped_steps = summary_.skipped_steps;
  metrics.tokens = batches.batch().tokens;
  metrics.trained_tokens = batches.batch().supervised;
  metrics.ring_tokens = tokens_in_rings(batches.plan());
  metrics.local_tokens = metrics.tokens - metrics.ring_tokens;
  metrics.peak_memory_bytes = control_.max(peak_process_memory());
  metrics.predicted_step_seconds = planned.predicted_seconds;
  metrics.schedule_seconds = planned.scheduling_seconds;
  metrics.schedule_wait_seconds = planned.waited_seconds;
  metrics.step_seconds = planned.waited_seconds + outcome.times.step;
  add_times(outcome.times, metrics);
  metrics.tokens_per_second = static_cast<double>(metrics.tokens) / metrics.step_seconds;
  metrics.trained_tokens_per_second = static_cast<double>(metrics.trained_tokens) / metrics.step_seconds;
  metrics.mfu = model_state_->config().training_flops(batches.batch().lengths) / metrics.step_seconds / peak_flops_;
  metrics.eta_seconds = loop_watch_.seconds() / static_cast<double>(step) * static_cast<double>(summary_.steps - step);
  summary_.tokens += metrics.tokens;
  if (outcome.updated) summary_.final_loss = outcome.loss;
  return metrics;
}

void TrainingRun::add_times(const StepTimes& times, StepMetrics& metrics) {
  std::array sums{times.compute, times.communication, times.exposed};
  control_.sum(sums);
  const double ranks = control_.size();
  const double most = control_.max(times.compute);
  metrics.imbalance = sums[0] > 0 ? most / (sums[0] / ranks) : 1.0;
  metrics.comm_seconds = sums[1] / ranks;
  metrics.comm_exposed_seconds = sums[2] / ranks;
}

/// Ends the run when too many steps in a row could not update the parameters.
void TrainingRun::count_skipped(const StepMetrics& metrics) {
  if (!metrics.skipped) {
    skipped_in_a_row_ = 0;
    return;
  }
  ++skipped_in_a_row_;
  log::warning(
      "step {}: loss {} and gradient norm {} are not both finite; the step was skipped, parameters are unchanged",
      metrics.step, metrics.loss, metrics.grad_norm);
  if (skipped_in_a_row_ < config_.max_skipped_steps) return;
  control_.agree_or_throw(fmt::format("step {}: {} steps in a row had a non-finite loss or gradient norm; the "
                                      "parameters are those of step {}. Lower "
                                      "the learning rate, or look at the data of these steps",
                                      metrics.step, skipped_in_a_row_, metrics.step - skipped_in_a_row_),
                          static_cast<int>(ExitCode::run_failed));
}

void TrainingRun::evaluate_after(std::int64_t step) {
  const Stopwatch watch;
  const EvalResult result =
      evaluate_dataset(data_.eval, loader_options_, *model_, model_state_->parameters(), *attention_, control_);
  EvalMetrics metrics;
  metrics.step = step;
  metrics.epoch = epochs_after(step);
  metrics.loss = result.loss;
  metrics.perplexity = result.perplexity;
  metrics.tokens = result.tokens;
  metrics.seconds = watch.seconds();
  summary_.eval_loss = result.loss;
  log::info_line(describe(metrics));
  if (metrics_file_) metrics_file_->append(metrics);
}

/// Calls `place` on rank 0 with the function that writes the model; a failure ends all ranks together.
void TrainingRun::save(const std::function<void(const WriteFolder&)>& place) {
  control_.run_together([&] { model_state_->export_model(config_, end_of_turn_, place); });
}

}  // namespace

TrainSummary train(const TrainConfig& config, const MpiSession& session) {
  return TrainingRun(config, session).run();
}

EvalResult evaluate(const TrainConfig& config, const MpiSession& session) {
  RankSession rank(config, session);
  ControlChannel& control = rank.control();
  std::unique_ptr<TextEncoder> encoder;
  std::unique_ptr<ModelState> state;
  control.run_together([&] {
    encoder = load_text_encoder(config);
    state = std::make_unique<ModelState>(config, rank, false);
  });
  Datasets data;
  data.eval = load_evaluation_data(config, encoder.get(), state->config().vocab_size,
                                   RunFolder(config.output_dir).cache_folder(), control);
  LoaderOptions options;
  std::unique_ptr<Transformer> model;
  std::unique_ptr<MicroBatchAttention> attention;
  control.run_together([&] {
    options.topology = rank.topology();
    options.rank = rank.grid().rank();
    options.policy = std::string(name_of(config.scheduler.policy));
    options.cost = make_cost_model(config, state->config());
    options.search = search_options(config);
    options.bucket_tokens =
        resolve_bucket_tokens(config, data, rank.grid().context_parallel, data.eval.size(), INT64_MAX);
    check_bucket_tokens(*data.eval.store, data.eval.samples, options.bucket_tokens, rank.grid().context_parallel);
    const TransformerOptions model_options = transformer_options(config, options.bucket_tokens, false);
    model = std::make_unique<Transformer>(state->config(), model_options, rank.device());
    attention = make_attention(state->config(), model_options, rank);
  });
  report_rows("data", *data.eval.store, config);
  report_lengths("data", data.eval, state->config().max_position_embeddings);
  report_first_sample("data", data.eval, encoder.get());
  const EvalResult result = evaluate_dataset(data.eval, options, *model, state->parameters(), *attention, control);
  control.agree_or_throw(std::isfinite(result.loss) ? ""
                                                    : fmt::format("the loss over {} tokens is {}; does the model hold "
                                                                  "weights that are not finite?",
                                                                  result.tokens, result.loss),
                         static_cast<int>(ExitCode::run_failed));
  return result;
}

}  // namespace skrull
