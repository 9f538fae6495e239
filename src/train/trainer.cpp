#include "skrull/train/trainer.h"

#include <array>
#include <cmath>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <utility>

#include "report.h"
#include "skrull/config/config_docs.h"
#include "skrull/core/activity.h"
#include "skrull/core/error.h"
#include "skrull/core/log.h"
#include "skrull/core/process.h"
#include "skrull/core/stopwatch.h"
#include "skrull/core/text.h"
#include "skrull/train/checkpoint_saver.h"
#include "skrull/train/checkpoint_state.h"
#include "skrull/train/datasets.h"
#include "skrull/train/evaluation.h"
#include "skrull/train/learning_rate.h"
#include "skrull/train/metrics.h"
#include "skrull/train/model_state.h"
#include "skrull/train/rank_session.h"
#include "skrull/train/resume.h"
#include "skrull/train/run_folder.h"
#include "skrull/train/scheduling.h"
#include "skrull/train/step.h"
#include "skrull/train/step_planner.h"
#include "skrull/train/step_trace.h"
#include "skrull/train/stop_request.h"
#include "skrull/train/trainer_state.h"

namespace skrull {
namespace {

/// Tokens of a micro-batch: longer ones are no faster, and nothing is known of the memory.
constexpr std::int64_t enough_for_evaluation = 8192;

/// One run, from start-up to the final save. The constructor is the start-up; every rank goes through the same stages.
class TrainingRun {
 public:
  TrainingRun(const TrainConfig& config, const MpiSession& session);
  TrainSummary run();

 private:
  void start_up();
  void plan_steps(std::int64_t tokens_in_memory);
  void allocate_activations(std::int64_t tokens_in_memory);
  const TrainerState* saved_state() const;
  void settle_resume();
  bool continue_at(const ResumePoint& point, ResumeSearch& checkpoints);
  void start_planning();
  void open_records();
  void report_start();
  bool finish_without_work();
  std::optional<StepMetrics> run_one_step(std::int64_t step);
  void add_times(const StepTimes& times, StepMetrics& metrics);
  void count_skipped(const StepMetrics& metrics);
  void evaluate_after(std::int64_t step);
  void save_checkpoint(const TrainerState& state, CheckpointSaver::Content content);
  void save_final();
  TrainerState state_after(std::int64_t step) const;
  void stop_if_asked(std::int64_t steps_done);
  [[noreturn]] void stop_after(std::int64_t step, bool evaluation_due);
  double epochs_after(std::int64_t steps) const {
    return static_cast<double>(steps) / static_cast<double>(steps_per_epoch_);
  }

  const TrainConfig& config_;
  RunFolder folder_;
  RankSession rank_;
  ControlChannel& control_;
  StopRequest stop_;
  Resume resume_;
  std::unique_ptr<TextEncoder> encoder_;
  std::unique_ptr<ModelState> model_state_;
  Datasets data_;
  LoaderOptions loader_options_;
  std::unique_ptr<StepPlanner> planner_;
  std::int64_t steps_per_epoch_ = 1;
  LearningRatePlan learning_rates_;
  std::unique_ptr<Transformer> model_;
  std::unique_ptr<MicroBatchAttention> attention_;
  std::unique_ptr<CheckpointSaver> saver_;
  std::unique_ptr<MetricsFile> metrics_file_;  ///< rank 0
  std::optional<StepTrace> trace_;
  double peak_flops_ = 0;  ///< of all ranks together
  EndOfTurn end_of_turn_;

  Stopwatch loop_watch_;
  std::int64_t steps_before_ = 0;  ///< of the checkpoint that this start continues
  std::int64_t saved_step_ = 0;    ///< of the newest checkpoint that training can continue from
  std::int64_t skipped_in_a_row_ = 0;
  TrainSummary summary_;
};

TrainingRun::TrainingRun(const TrainConfig& config, const MpiSession& session)
    : config_(config),
      folder_(config.output_dir),
      rank_(config, session),
      control_(rank_.control()),
      stop_(control_, config.output_dir) {
  summary_.final_loss = summary_.eval_loss = std::numeric_limits<double>::quiet_NaN();
  try {
    start_up();
  } catch (const Stopped&) {
    stop_after(0, false);
  }
}

void TrainingRun::start_up() {
  control_.run_together([&] {
    if (control_.rank() == 0) folder_.check(config_);
    encoder_ = load_text_encoder(config_);
  });
  stop_.throw_if_asked();
  ResumeSearch checkpoints(config_, folder_, control_, stop_);
  resume_ = checkpoints.next();
  const auto throw_if_asked_to_stop = [this] { stop_.throw_if_asked(); };
  const bool lacks_weights = resume_.point || resume_.finished;
  control_.run_together([&] {
    model_state_ = std::make_unique<ModelState>(config_, rank_, true, !lacks_weights, throw_if_asked_to_stop);
  });
  const std::int64_t vocab_size = model_state_->config().vocab_size;
  data_ = load_datasets(config_, encoder_.get(), vocab_size, folder_.cache_folder(), control_, &stop_);
  // The rank with the least memory decides.
  const std::int64_t tokens_in_memory = -control_.max(-tokens_that_fit(config_, model_state_->config(), rank_));
  for (;; resume_ = checkpoints.next()) {
    control_.run_together([&] { plan_steps(tokens_in_memory); });
    if (resume_.finished) return;
    if (!resume_.point || continue_at(*resume_.point, checkpoints)) break;
  }
  control_.run_together([&] {
    if (lacks_weights && !resume_.point) model_state_->load_weights(config_, throw_if_asked_to_stop);
    start_planning();
    allocate_activations(tokens_in_memory);
  });
  control_.run_together([&] { open_records(); });
  peak_flops_ = control_.sum(rank_.device().peak_flops(config_.compute_dtype));
  report_start();
}

/// `tokens_in_memory`: what a micro-batch may hold by the memory model.
void TrainingRun::allocate_activations(std::int64_t tokens_in_memory) {
  const TransformerOptions options = transformer_options(config_, loader_options_.bucket_tokens, true);
  try {
    model_ = std::make_unique<Transformer>(model_state_->config(), options, rank_.device());
    attention_ = make_attention(model_state_->config(), options, rank_);
  } catch (const OutOfMemory& error) {
    throw_run_failure("{}\nA micro-batch was to hold {} tokens (bucket_tokens); about {} fit.", error.what(),
                      options.max_tokens, std::max<std::int64_t>(0, tokens_in_memory));
  }
}

/// How batches are loaded, and the number of steps.
void TrainingRun::plan_steps(std::int64_t tokens_in_memory) {
  const TrainerState* saved = saved_state();
  const std::int64_t replicas = rank_.grid().data_parallel;
  const std::int64_t global_batch_size = saved != nullptr ? resumed_global_batch_size(*saved, config_, replicas)
                                                          : resolve_global_batch_size(config_, replicas);
  loader_options_.topology = rank_.topology();
  loader_options_.rank = rank_.grid().rank();
  loader_options_.policy = std::string(name_of(config_.scheduler.policy));
  loader_options_.cost = make_cost_model(config_, model_state_->config());
  loader_options_.search = search_options(config_);
  loader_options_.search.keep_ahead = true;
  loader_options_.bucket_tokens = resolve_bucket_tokens(config_, data_, rank_, global_batch_size, tokens_in_memory);
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
  settle_resume();
}

void TrainingRun::start_planning() {
  trace_.emplace(config_, folder_.trace_file(), steps_before_, summary_.steps, rank_);
  planner_ = std::make_unique<StepPlanner>(data_.train, loader_options_, summary_.steps, control_);
  learning_rates_ = plan_learning_rate(config_, summary_.steps);
}

const TrainerState* TrainingRun::saved_state() const {
  if (resume_.finished) return &*resume_.finished;
  return resume_.point ? &resume_.point->state : nullptr;
}

/// Decides whether there is something to continue, and whether it may be continued. A finished run that is given more
/// steps goes on at its newest checkpoint.
void TrainingRun::settle_resume() {
  if (resume_.finished && resume_.finished->step < summary_.steps) {
    if (!resume_.point) {
      throw_invalid_input(
          "output_dir: the run in {} is finished with {} steps and left no checkpoint from which it could go on to {}; "
          "train anew in another output_dir, from {} as the model if you like",
          config_.output_dir.string(), resume_.finished->step, summary_.steps, config_.output_dir.string());
    }
    resume_.finished.reset();
  }
  const TrainerState* saved = saved_state();
  if (saved == nullptr) return;
  const std::string origin = (resume_.finished ? config_.output_dir : resume_.point->folder).string();
  check_resumable(*saved, origin, config_, loader_options_.global_batch_size, data_.train, model_state_->config());
  if (resume_.finished || saved->step <= summary_.steps) return;
  throw_invalid_input("{}: it was saved after step {}, the run has {} steps; raise max_steps or num_train_epochs",
                      origin, saved->step, summary_.steps);
}

/// Parameters, moments and counters of the checkpoint. False when it is damaged.
bool TrainingRun::continue_at(const ResumePoint& point, ResumeSearch& checkpoints) {
  const TrainerState& state = point.state;
  const bool is_sound = checkpoints.accept([&] {
    read_owned_state(point.folder, point.manifest, control_.rank(), control_.size(), model_state_->parameters(),
                     rank_.device(), [&] { checkpoints.leave_if_asked(); });
  });
  if (!is_sound) return false;
  model_state_->parameters().restore(state.updates);
  steps_before_ = state.step;
  saved_step_ = point.in_output_dir ? state.step : 0;
  skipped_in_a_row_ = state.skipped_in_a_row;
  summary_.skipped_steps = state.skipped_steps;
  summary_.tokens = state.tokens;
  summary_.final_loss = state.loss;
  summary_.eval_loss = state.eval_loss;
  return true;
}

/// Everything that is written during the run. From here on output_dir changes.
void TrainingRun::open_records() {
  if (control_.rank() == 0) {
    end_of_turn_ = find_end_of_turn(data_.train, tokenizer_folder(config_));
    if (resume_.point && resume_.point->in_output_dir) {
      folder_.continue_after(steps_before_, config_);
    } else {
      folder_.begin(config_);
    }
    report_disk_space(config_.output_dir, model_state_->exported_weights(config_).layout.bytes());
    log::add_file(folder_.log_file());
    metrics_file_ = std::make_unique<MetricsFile>(folder_.metrics_file());
  }
  saver_ = std::make_unique<CheckpointSaver>(config_, folder_, *model_state_, end_of_turn_, rank_);
}

void TrainingRun::report_start() {
  const RankGrid& grid = rank_.grid();
  log::info("ranks: {} (data parallel {} x context parallel {}), {}", grid.world_size(), grid.data_parallel,
            grid.context_parallel, rank_.cpu_share());
  log::info("device: {}, at most {:.0f} GFLOP/s in {}", rank_.device().description(),
            peak_flops_ / grid.world_size() / 1e9, name_of(config_.compute_dtype));
  if (config_.device == DeviceChoice::automatic && built_with_cuda() && !cuda_available()) {
    log::info("the CPU computes: {}", cuda_problem());
  }
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
  report_memory(rank_.device(), model_state_->config(),
                memory_options(config_, model_state_->config(), rank_.topology()), loader_options_.bucket_tokens);
  if (!resume_.point) return;
  log::info("continuing after step {} of {}, saved by {} ranks in {}", steps_before_, format_count(summary_.steps),
            resume_.point->state.ranks, resume_.point->folder.string());
  for (const std::string& line : describe_changes(resume_.point->state, config_)) log::info("{}", line);
}

TrainSummary TrainingRun::run() {
  if (finish_without_work()) return summary_;
  loop_watch_ = {};
  if (resume_.point && resume_.point->state.evaluation_due) evaluate_after(steps_before_);
  for (std::int64_t step = steps_before_ + 1; step <= summary_.steps; ++step) {
    set_activity(fmt::format("step {}", step));
    stop_if_asked(step - 1);
    const std::optional<StepMetrics> metrics = run_one_step(step);
    if (!metrics) stop_after(step - 1, false);
    if (metrics_file_) metrics_file_->append(*metrics);
    const bool last = step == summary_.steps;
    const std::string line = describe(*metrics, summary_.steps);
    if (last || step == steps_before_ + 1 || step % config_.logging_steps == 0) {
      log::info_line(line);
    } else {
      log::progress(line);
    }
    count_skipped(*metrics);
    if (!data_.eval.empty() && (last || (config_.eval_steps > 0 && step % config_.eval_steps == 0))) {
      evaluate_after(step);
    }
    if (!last && config_.save_steps > 0 && step % config_.save_steps == 0) {
      using Content = CheckpointSaver::Content;
      save_checkpoint(state_after(step), config_.save_only_model ? Content::model_alone : Content::everything);
    }
  }
  save_final();
  summary_.train_seconds = loop_watch_.seconds();
  return summary_;
}

/// A run that is finished already: says so and reports what it reported.
bool TrainingRun::finish_without_work() {
  if (!resume_.finished) return false;
  const TrainerState& state = *resume_.finished;
  log::info("the run in {} is finished: {} of {} steps; nothing to do", folder_.path().string(), state.step,
            summary_.steps);
  summary_.steps = state.step;
  summary_.skipped_steps = state.skipped_steps;
  summary_.tokens = state.tokens;
  summary_.final_loss = state.loss;
  summary_.eval_loss = state.eval_loss;
  return true;
}

/// Nothing when the step was abandoned because the run is to stop.
std::optional<StepMetrics> TrainingRun::run_one_step(std::int64_t step) {
  const PlannedStep planned = planner_->step(step - 1);
  const StepBatches& batches = planned.batches;
  StepMetrics metrics;
  metrics.step = step;
  metrics.epoch = epochs_after(step);
  metrics.learning_rate = learning_rate_at(learning_rates_, step - 1);
  trace_->begin_step(step);
  const StepOutcome outcome = run_step(batches, config_, metrics.learning_rate, *model_, model_state_->parameters(),
                                       *attention_, rank_.device(), control_, [this] { return stop_.agreed(); });
  if (outcome.stopped) return std::nullopt;
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
  metrics.peak_device_memory_bytes = control_.max(rank_.device().peak_bytes());
  metrics.predicted_step_seconds = planned.predicted_seconds;
  metrics.schedule_seconds = planned.scheduling_seconds;
  metrics.schedule_wait_seconds = planned.waited_seconds;
  metrics.step_seconds = planned.waited_seconds + outcome.times.step;
  add_times(outcome.times, metrics);
  metrics.tokens_per_second = static_cast<double>(metrics.tokens) / metrics.step_seconds;
  metrics.trained_tokens_per_second = static_cast<double>(metrics.trained_tokens) / metrics.step_seconds;
  metrics.mfu = model_state_->config().training_flops(batches.batch().lengths) / metrics.step_seconds / peak_flops_;
  metrics.eta_seconds =
      loop_watch_.seconds() / static_cast<double>(step - steps_before_) * static_cast<double>(summary_.steps - step);
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
  set_activity(fmt::format("evaluation after step {}", step));
  const std::optional<EvalResult> result =
      evaluate_dataset(data_.eval, loader_options_, *model_, model_state_->parameters(), *attention_, control_,
                       [this] { return stop_.agreed(); });
  if (!result) stop_after(step, true);
  EvalMetrics metrics;
  metrics.step = step;
  metrics.epoch = epochs_after(step);
  metrics.loss = result->loss;
  metrics.perplexity = result->perplexity;
  metrics.tokens = result->tokens;
  metrics.seconds = watch.seconds();
  summary_.eval_loss = result->loss;
  log::info_line(describe(metrics));
  if (metrics_file_) metrics_file_->append(metrics);
}

TrainerState TrainingRun::state_after(std::int64_t step) const {
  TrainerState state;
  state.step = step;
  state.updates = model_state_->parameters().updates();
  state.total_steps = summary_.steps;
  state.steps_per_epoch = steps_per_epoch_;
  state.global_batch_size = loader_options_.global_batch_size;
  state.skipped_steps = summary_.skipped_steps;
  state.skipped_in_a_row = skipped_in_a_row_;
  state.tokens = summary_.tokens;
  state.loss = summary_.final_loss;
  state.eval_loss = summary_.eval_loss;
  state.ranks = rank_.grid().world_size();
  state.context_parallel = rank_.grid().context_parallel;
  state.data_fingerprint = fingerprint_of(data_.train);
  state.model = model_state_->config();
  state.config = config_to_json(config_);
  return state;
}

void TrainingRun::save_checkpoint(const TrainerState& state, CheckpointSaver::Content content) {
  const Stopwatch watch;
  saver_->save(state, content);
  if (content == CheckpointSaver::Content::everything) saved_step_ = state.step;
  log::info("saved {} in {}", folder_.checkpoint_folder(state.step).string(), format_duration(watch.seconds()));
}

/// The trained model, and then the state that says that the run is finished. A failure ends all ranks together.
void TrainingRun::save_final() {
  set_activity("saving the trained model");
  model_state_->export_model(config_, end_of_turn_, control_,
                             [&](const WriteFolder& write) { folder_.save_final(write); });
  TrainerState state = state_after(summary_.steps);
  state.finished = true;
  control_.run_together([&] {
    if (control_.rank() == 0) write_trainer_state(folder_.path() / trainer_state_file, state);
  });
  log::info("saved the model to {}", folder_.path().string());
}

/// `steps_done`: of the run, in this start or before.
void TrainingRun::stop_if_asked(std::int64_t steps_done) {
  if (stop_.agreed()) stop_after(steps_done, false);
}

/// Saves what is not saved yet and ends all ranks with the exit code on which a batch script starts again.
void TrainingRun::stop_after(std::int64_t step, bool evaluation_due) {
  const std::string reason = stop_.reason();
  if (step > saved_step_) {
    log::info("asked to stop ({}): saving", reason);
    TrainerState state = state_after(step);
    state.evaluation_due = evaluation_due;
    save_checkpoint(state, CheckpointSaver::Content::everything);
  }
  if (control_.rank() == 0) stop_.remove_file();
  control_.barrier();
  const std::string where =
      saved_step_ > 0 ? fmt::format("after step {}, which {} holds; resume_from_checkpoint=auto continues there", step,
                                    folder_.checkpoint_folder(saved_step_).string())
                      : std::string("before the first step");
  control_.agree_or_throw(fmt::format("stopped ({}) {}", reason, where), static_cast<int>(ExitCode::stopped_by_signal));
  throw_run_failure("all ranks were to stop");
}

/// Loss of a model on a data set. The constructor is the start-up.
class EvaluationRun {
 public:
  EvaluationRun(const TrainConfig& config, const MpiSession& session);
  EvalResult run();

 private:
  const TrainConfig& config_;
  RankSession rank_;
  std::unique_ptr<TextEncoder> encoder_;
  std::unique_ptr<ModelState> state_;
  Datasets data_;
  LoaderOptions loader_options_;
  std::unique_ptr<Transformer> model_;
  std::unique_ptr<MicroBatchAttention> attention_;
};

EvaluationRun::EvaluationRun(const TrainConfig& config, const MpiSession& session)
    : config_(config), rank_(config, session) {
  ControlChannel& control = rank_.control();
  control.run_together([&] {
    encoder_ = load_text_encoder(config);
    state_ = std::make_unique<ModelState>(config, rank_, false);
  });
  data_.eval = load_evaluation_data(config, encoder_.get(), state_->config().vocab_size,
                                    RunFolder(config.output_dir).cache_folder(), control);
  control.run_together([&] {
    loader_options_.topology = rank_.topology();
    loader_options_.rank = rank_.grid().rank();
    loader_options_.policy = std::string(name_of(config.scheduler.policy));
    loader_options_.cost = make_cost_model(config, state_->config());
    loader_options_.search = search_options(config);
    loader_options_.bucket_tokens =
        resolve_bucket_tokens(config, data_, rank_, data_.eval.size(), enough_for_evaluation);
    check_bucket_tokens(*data_.eval.store, data_.eval.samples, loader_options_.bucket_tokens,
                        rank_.grid().context_parallel);
    const TransformerOptions model_options = transformer_options(config, loader_options_.bucket_tokens, false);
    model_ = std::make_unique<Transformer>(state_->config(), model_options, rank_.device());
    attention_ = make_attention(state_->config(), model_options, rank_);
  });
}

EvalResult EvaluationRun::run() {
  report_rows("data", *data_.eval.store, config_);
  report_lengths("data", data_.eval, state_->config().max_position_embeddings);
  report_first_sample("data", data_.eval, encoder_.get());
  ControlChannel& control = rank_.control();
  const EvalResult result =
      *evaluate_dataset(data_.eval, loader_options_, *model_, state_->parameters(), *attention_, control);
  control.agree_or_throw(std::isfinite(result.loss) ? ""
                                                    : fmt::format("the loss over {} tokens is {}; does the model hold "
                                                                  "weights that are not finite?",
                                                                  result.tokens, result.loss),
                         static_cast<int>(ExitCode::run_failed));
  return result;
}

/// What this rank does of a run over all ranks.
template <class Run>
auto carry_out(const TrainConfig& config, const MpiSession& session) {
  auto run = std::make_unique<Run>(config, session);
  try {
    return run->run();
  } catch (const std::exception& error) {
    // The caller ends all ranks (MpiSession::abort). What this one holds is left as it is: its work on the device may
    // wait for ranks that never come, and to free memory would wait for that work.
    if (session.size() > 1 && !failed_together(error)) static_cast<void>(run.release());
    throw;
  }
}

}  // namespace

TrainSummary train(const TrainConfig& config, const MpiSession& session) {
  return carry_out<TrainingRun>(config, session);
}

EvalResult evaluate(const TrainConfig& config, const MpiSession& session) {
  return carry_out<EvaluationRun>(config, session);
}

}  // namespace skrull
