#pragma once
// The resolved configuration of a run. A member has the name of its option (`scheduler.policy` in JSON is
// `config.scheduler.policy` here) and its initialiser is the option's default; the option table (src/config) adds the
// rest: range, unit, help. docs/configuration.md is the reference made from it.

#include <cstdint>
#include <filesystem>
#include <optional>
#include <vector>

#include "skrull/config/choices.h"

namespace skrull {

/// Rows split off the dataset for evaluation: a fraction of them, a number of them, or (both 0) none.
struct ValidationSize {
  double fraction = 0.0;  ///< in (0, 1), or 0
  std::int64_t rows = 0;  ///< >= 1, or 0

  bool empty() const { return fraction == 0.0 && rows == 0; }
  bool operator==(const ValidationSize&) const = default;
};

struct SchedulerConfig {
  SchedulingPolicy policy = SchedulingPolicy::skrull;
  bool elastic_rings = true;
  std::optional<std::int64_t> search_moves;  ///< empty: "auto"
  double budget_ms = 0.0;                    ///< 0: none
  std::int64_t threads = 1;
  CostModelChoice cost_model = CostModelChoice::exact;

  bool operator==(const SchedulerConfig&) const = default;
};

struct EmulatedNetworkConfig {
  double bytes_per_s = 0.0;  ///< 0: no emulation
  double latency_s = 0.0;
  EmulatedClock clock = EmulatedClock::wall;

  bool enabled() const { return bytes_per_s > 0.0; }
  bool operator==(const EmulatedNetworkConfig&) const = default;
};

/// Every option of a run, with its default, in the order of the reference. An empty path or list means "not given".
struct TrainConfig {  // NOLINT(clang-analyzer-optin.performance.Padding)
  // Model
  std::filesystem::path model_name_or_path;
  Initialization init = Initialization::pretrained;
  std::filesystem::path tokenizer_name_or_path;  ///< empty: see tokenizer_folder()

  // Data
  std::vector<std::filesystem::path> dataset;
  std::vector<std::filesystem::path> eval_dataset;
  ValidationSize val_size;
  std::int64_t cutoff_len = 32768;  ///< tokens
  OverlengthPolicy overlength = OverlengthPolicy::drop;
  DataOrder data_order = DataOrder::shuffled;
  std::int64_t preprocessing_num_workers = 0;  ///< threads; 0: one per core

  // Batch: see resolve_global_batch_size()
  std::optional<std::int64_t> global_batch_size;            ///< sequences per optimizer step
  std::optional<std::int64_t> per_device_train_batch_size;  ///< sequences
  std::optional<std::int64_t> gradient_accumulation_steps;
  std::optional<std::int64_t> bucket_tokens;   ///< tokens of one rank in one micro-batch; empty: "auto"
  std::int64_t context_parallel_size = 1;      ///< ranks that share a replica's sequences
  std::optional<std::int64_t> ranks_per_node;  ///< empty: "auto"
  std::filesystem::path hardware_profile;      ///< file or shipped name; empty: that of the device
  SchedulerConfig scheduler;

  // Length of the run
  double num_train_epochs = 3.0;
  std::int64_t max_steps = -1;  ///< optimizer steps; -1: by epochs
  std::int64_t seed = 42;

  // Optimizer
  double learning_rate = 1e-5;
  LearningRateSchedule lr_scheduler_type = LearningRateSchedule::cosine;
  double min_lr_ratio = 0.1;      ///< of learning_rate
  double lr_decay_ratio = 0.1;    ///< of all steps
  double warmup_ratio = 0.03;     ///< of all steps
  std::int64_t warmup_steps = 0;  ///< > 0 overrides warmup_ratio
  double weight_decay = 0.0;
  double adam_beta1 = 0.9;
  double adam_beta2 = 0.999;
  double adam_epsilon = 1e-8;
  double max_grad_norm = 1.0;  ///< 0: no clipping
  LossReduction loss_reduction = LossReduction::token_mean;
  std::int64_t max_skipped_steps = 3;  ///< in a row

  // Precision, memory and machine
  DeviceChoice device = DeviceChoice::automatic;
  AttentionEngineChoice attention_engine = AttentionEngineChoice::automatic;
  bool deterministic_attention = true;
  DType compute_dtype = DType::float32;
  GradientCheckpointing gradient_checkpointing = GradientCheckpointing::selective;
  std::int64_t zero_stage = 2;  ///< 0 to 3
  GradientReductionChoice reduce_gradients = GradientReductionChoice::micro_batch;
  OptimizerOffload offload_optimizer = OptimizerOffload::none;
  std::int64_t loss_chunk_tokens = 0;  ///< 0: automatic
  CpuBinding cpu_binding = CpuBinding::automatic;
  EmulatedNetworkConfig emulated_network;
  std::int64_t timeout_seconds = 1800;  ///< 0: none

  // Output
  std::filesystem::path output_dir;
  bool overwrite_output_dir = false;
  std::int64_t logging_steps = 10;
  std::int64_t eval_steps = 0;        ///< 0: only at the end
  std::int64_t save_steps = 0;        ///< 0: only at the end
  std::int64_t save_total_limit = 0;  ///< 0: keep all
  bool save_only_model = false;       ///< of periodic checkpoints
  std::optional<DType> save_dtype;    ///< empty: "auto", as in the input model
  bool trace = false;
  std::int64_t trace_first_step = 2;
  std::int64_t trace_steps = 1;
  /// "auto" (resume_automatically), a checkpoint or the output_dir of a run; empty: start anew.
  std::filesystem::path resume_from_checkpoint;

  bool operator==(const TrainConfig&) const = default;
};

/// The value of resume_from_checkpoint that means: from the newest valid checkpoint in output_dir, if there is one.
inline constexpr const char* resume_automatically = "auto";

/// Sequences per optimizer step when nothing says otherwise.
inline constexpr std::int64_t default_global_batch_size = 16;

/// Sequences per optimizer step on `data_parallel` replicas: global_batch_size, or per_device_train_batch_size x
/// gradient_accumulation_steps (default 1) x data_parallel, or default_global_batch_size. Throws InvalidInput when both
/// are given and disagree, naming both numbers.
std::int64_t resolve_global_batch_size(const TrainConfig& config, std::int64_t data_parallel);

/// The folder of the tokenizer: tokenizer_name_or_path, else the model folder.
const std::filesystem::path& tokenizer_folder(const TrainConfig& config);

}  // namespace skrull
