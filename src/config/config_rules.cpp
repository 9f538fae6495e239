#include "config_rules.h"

#include "skrull/core/error.h"

namespace skrull {
namespace {

const TrainConfig defaults;

/// a * b, or nullopt when 64 bits don't hold it.
std::optional<std::int64_t> multiply(std::int64_t a, std::int64_t b) {
  std::int64_t product = 0;
  if (__builtin_mul_overflow(a, b, &product)) return {};
  return product;
}

std::optional<std::int64_t> sequences_per_replica(const TrainConfig& config) {
  return multiply(*config.per_device_train_batch_size, config.gradient_accumulation_steps.value_or(1));
}

std::string accumulation_needs_device_batch(const TrainConfig& config) {
  if (!config.gradient_accumulation_steps || config.per_device_train_batch_size) return "";
  return "means nothing without per_device_train_batch_size; give that too, or global_batch_size alone";
}

std::string batch_sizes_agree(const TrainConfig& config) {
  if (!config.per_device_train_batch_size) return "";
  const auto per_replica = sequences_per_replica(config);
  if (!per_replica) return "times gradient_accumulation_steps does not fit into 64 bits";
  if (!config.global_batch_size || *config.global_batch_size % *per_replica == 0) return "";
  return fmt::format(
      "{} x gradient_accumulation_steps {} = {} sequences per rank contradicts global_batch_size {}, which is no "
      "multiple "
      "of it; give one or the other",
      *config.per_device_train_batch_size, config.gradient_accumulation_steps.value_or(1), *per_replica,
      *config.global_batch_size);
}

std::string one_source_of_evaluation_data(const TrainConfig& config) {
  if (config.val_size.empty() || config.eval_dataset.empty()) return "";
  return "contradicts eval_dataset: evaluation rows come either from there or from the dataset; remove one of the two";
}

std::string evaluation_needs_data(const TrainConfig& config) {
  if (config.eval_steps == 0 || !config.val_size.empty() || !config.eval_dataset.empty()) return "";
  return fmt::format("is {} but there is nothing to evaluate on; give eval_dataset or val_size", config.eval_steps);
}

std::string constant_has_no_warmup(const TrainConfig& config) {
  const bool asks_for_warmup =
      config.warmup_steps > 0 || (config.warmup_ratio > 0.0 && config.warmup_ratio != defaults.warmup_ratio);
  if (config.lr_scheduler_type != LearningRateSchedule::constant || !asks_for_warmup) return "";
  return "constant has no warm-up, but a warm-up is asked for; choose constant_with_warmup, or remove warmup_steps and "
         "warmup_ratio";
}

std::string warmup_leaves_steps(const TrainConfig& config) {
  const bool has_warmup = config.lr_scheduler_type != LearningRateSchedule::constant;
  if (!has_warmup || config.max_steps < 0 || config.warmup_steps < config.max_steps) return "";
  return fmt::format("is {}, which leaves nothing of the {} steps of max_steps; give fewer warm-up steps",
                     config.warmup_steps, config.max_steps);
}

std::string minimum_has_a_schedule(const TrainConfig& config) {
  const auto schedule = config.lr_scheduler_type;
  if (config.min_lr_ratio == defaults.min_lr_ratio || schedule == LearningRateSchedule::cosine_with_min_lr ||
      schedule == LearningRateSchedule::wsd) {
    return "";
  }
  return fmt::format("has no effect with lr_scheduler_type {}; choose cosine_with_min_lr or wsd, or remove it",
                     name_of(schedule));
}

std::string decay_has_a_schedule(const TrainConfig& config) {
  if (config.lr_decay_ratio == defaults.lr_decay_ratio || config.lr_scheduler_type == LearningRateSchedule::wsd)
    return "";
  return fmt::format("has no effect with lr_scheduler_type {}; choose wsd, or remove it",
                     name_of(config.lr_scheduler_type));
}

std::string sums_once_a_step_are_kept_whole(const TrainConfig& config) {
  if (config.reduce_gradients != GradientReductionChoice::step || config.zero_stage <= 1) return "";
  return fmt::format(
      "step needs whole gradients on every rank, and zero_stage {} divides them; choose zero_stage 0 or 1, or "
      "reduce_gradients micro_batch",
      config.zero_stage);
}

std::string processor_time_is_of_one_thread(const TrainConfig& config) {
  if (config.offload_optimizer == OptimizerOffload::none || !config.emulated_network.enabled()) return "";
  return "an emulated network counts the time of one thread, and cpu updates on others; choose none";
}

std::string output_is_not_the_input(const TrainConfig& config) {
  if (config.output_dir.empty()) return "";
  const auto output = config.output_dir.lexically_normal();
  for (const auto* input : {&config.model_name_or_path, &config.tokenizer_name_or_path}) {
    if (!input->empty() && (*input / "").lexically_normal() == (output / "").lexically_normal()) {
      return fmt::format("{} is also where the model or tokenizer is read from; choose another folder",
                         config.output_dir.string());
    }
  }
  return "";
}

}  // namespace

const std::vector<ConfigRule>& config_rules() {
  static const std::vector<ConfigRule> rules = {
      {{"gradient_accumulation_steps", "per_device_train_batch_size"}, accumulation_needs_device_batch},
      {{"per_device_train_batch_size", "gradient_accumulation_steps", "global_batch_size"}, batch_sizes_agree},
      {{"val_size", "eval_dataset"}, one_source_of_evaluation_data},
      {{"eval_steps", "val_size", "eval_dataset"}, evaluation_needs_data},
      {{"lr_scheduler_type", "warmup_steps", "warmup_ratio"}, constant_has_no_warmup},
      {{"warmup_steps", "max_steps"}, warmup_leaves_steps},
      {{"min_lr_ratio", "lr_scheduler_type"}, minimum_has_a_schedule},
      {{"lr_decay_ratio", "lr_scheduler_type"}, decay_has_a_schedule},
      {{"reduce_gradients", "zero_stage"}, sums_once_a_step_are_kept_whole},
      {{"offload_optimizer", "emulated_network.bytes_per_s"}, processor_time_is_of_one_thread},
      {{"output_dir", "model_name_or_path", "tokenizer_name_or_path"}, output_is_not_the_input},
  };
  return rules;
}

std::int64_t resolve_global_batch_size(const TrainConfig& config, std::int64_t data_parallel) {
  require(data_parallel >= 1, "the number of data-parallel ranks is {}", data_parallel);
  if (!config.per_device_train_batch_size) return config.global_batch_size.value_or(default_global_batch_size);
  const auto per_replica = sequences_per_replica(config);
  const auto product = per_replica ? multiply(*per_replica, data_parallel) : std::nullopt;
  if (product && (!config.global_batch_size || *config.global_batch_size == *product)) return *product;
  throw_invalid_input(
      "per_device_train_batch_size {} x gradient_accumulation_steps {} x {} data-parallel ranks = {} sequences per "
      "step{}",
      *config.per_device_train_batch_size, config.gradient_accumulation_steps.value_or(1), data_parallel,
      product ? std::to_string(*product) : "too many",
      product
          ? fmt::format(" contradicts global_batch_size {}; give one or the other, or start another number of ranks",
                        *config.global_batch_size)
          : "");
}

const std::filesystem::path& tokenizer_folder(const TrainConfig& config) {
  return config.tokenizer_name_or_path.empty() ? config.model_name_or_path : config.tokenizer_name_or_path;
}

}  // namespace skrull
