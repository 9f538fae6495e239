#include "option_table.h"

#include <algorithm>
#include <unordered_map>

#include "skrull/core/text.h"

namespace skrull {
namespace {

/// OptionValue over a codec and a path of members (`&TrainConfig::scheduler, &SchedulerConfig::policy`).
template <class Codec, class Access>
class BoundValue final : public OptionValue {
 public:
  BoundValue(Codec codec, Access access) : codec_(std::move(codec)), access_(access) {}

  bool assign(const OrderedJson& json, TrainConfig& config, const ProblemSink& problems) const override {
    auto value = codec_.read(json, problems);
    if (value) access_(config) = std::move(*value);
    return value.has_value();
  }
  OrderedJson to_json(const TrainConfig& config) const override { return codec_.to_json(access_(config)); }
  bool is_empty(const TrainConfig& config) const override { return codec_.is_empty(access_(config)); }
  OrderedJson from_text(std::string_view text) const override { return codec_.from_text(text); }
  OrderedJson schema() const override { return codec_.schema(); }
  bool null_is_empty() const override { return codec_.null_is_empty(); }
  std::string type_name() const override { return codec_.type_name(); }
  std::string allowed() const override { return codec_.allowed(); }
  bool accepts_switch() const override { return codec_.accepts_switch(); }
  const ChoiceNames* choices() const override { return codec_.choices(); }

 private:
  Codec codec_;
  Access access_;
};

template <class Codec, class... Members>
std::shared_ptr<const OptionValue> bound(Codec codec, Members... members) {
  auto access = [members...](auto& config) -> auto& {
    return (config.*....*members);
  };
  return std::make_shared<BoundValue<Codec, decltype(access)>>(std::move(codec), access);
}

using C = TrainConfig;
using Integer = IntegerCodec;
using Number = NumberCodec;
template <class Enum>
using OneOf = ChoiceCodec<Enum>;

const auto count = at_least<std::int64_t>(0);
const auto positive = at_least<std::int64_t>(1);
constexpr std::int64_t most_ranks = 1 << 20;  // any number that fits an int with room to multiply

std::vector<Option> model_options() {
  constexpr auto group = OptionGroup::model;
  return {
      {.name = "model_name_or_path",
       .group = group,
       .value = bound(PathCodec(), &C::model_name_or_path),
       .help = "The model: a local folder in Hugging Face layout. With `init: random` its `config.json` is enough",
       .known_elsewhere = {"model", "base_model", "model_path", "load"},
       .required_for_training = true},
      {.name = "init",
       .group = group,
       .value = bound(OneOf<Initialization>(), &C::init),
       .help = "Where the weights come from",
       .known_elsewhere = {"train_from_scratch"}},
      {.name = "tokenizer_name_or_path",
       .group = group,
       .value = bound(PathCodec(), &C::tokenizer_name_or_path),
       .help = "The folder of the tokenizer. Not needed when the rows are `input_ids`",
       .default_note = "the model folder",
       .known_elsewhere = {"tokenizer", "tokenizer_path"}},
  };
}

std::vector<Option> data_options() {
  constexpr auto group = OptionGroup::data;
  return {
      {.name = "dataset",
       .group = group,
       .value = bound(PathListCodec(), &C::dataset),
       .help = "JSONL files with one row a line: `messages` (and `tools`), `text`, or `input_ids` (and `labels`)",
       .known_elsewhere = {"datasets", "train_file", "data_path", "dataset_dir"},
       .required_for_training = true},
      {.name = "eval_dataset",
       .group = group,
       .value = bound(PathListCodec(), &C::eval_dataset),
       .help = "JSONL files to evaluate on. Excludes `val_size`",
       .default_note = "none",
       .known_elsewhere = {"validation_file", "test_datasets"}},
      {.name = "val_size",
       .group = group,
       .value = bound(ValidationSizeCodec(), &C::val_size),
       .help = "Rows to split off `dataset` for evaluation, chosen by `seed`: a fraction of the rows, or their number",
       .known_elsewhere = {"val_set_size", "split_dataset_ratio", "validation_split"},
       .fixed_on_resume = true},
      {.name = "cutoff_len",
       .group = group,
       .value = bound(Integer(at_least<std::int64_t>(2)), &C::cutoff_len),
       .help = "Longest sequence to train on; `overlength` says what happens to longer rows",
       .unit = "tokens",
       .aliases = {"max_length"},
       .known_elsewhere = {"sequence_len", "seq_length", "max_seq_length", "max_seq_len", "model_max_length"},
       .fixed_on_resume = true},
      {.name = "overlength",
       .group = group,
       .value = bound(OneOf<OverlengthPolicy>(), &C::overlength),
       .help = "What to do with a row of more than `cutoff_len` tokens",
       .known_elsewhere = {"truncation_strategy", "excess_length_strategy"},
       .fixed_on_resume = true},
      {.name = "data_order",
       .group = group,
       .value = bound(OneOf<DataOrder>(), &C::data_order),
       .help = "The order of the rows, a pure function of `seed` and the epoch",
       .known_elsewhere = {"group_by_length", "shuffle", "disable_shuffling"},
       .fixed_on_resume = true},
      {.name = "preprocessing_num_workers",
       .group = group,
       .value = bound(Integer(count), &C::preprocessing_num_workers),
       .help = "Threads that tokenize the dataset; 0: one per core",
       .unit = "threads",
       .known_elsewhere = {"dataset_num_proc", "dataset_processes", "num_workers"}},
  };
}

std::vector<Option> batch_options() {
  constexpr auto group = OptionGroup::batch;
  static const std::string default_batch =
      fmt::format("{}, unless `per_device_train_batch_size` is given", default_global_batch_size);
  return {
      {.name = "global_batch_size",
       .group = group,
       .value = bound(OptionalCodec(Integer(positive)), &C::global_batch_size),
       .help = "Sequences per optimizer step, over all ranks. The last, smaller batch of an epoch is kept",
       .unit = "sequences",
       .default_note = default_batch,
       .known_elsewhere = {"train_batch_size", "batch_size"}},
      {.name = "per_device_train_batch_size",
       .group = group,
       .value = bound(OptionalCodec(Integer(positive)), &C::per_device_train_batch_size),
       .help =
           "The other way to give the batch: times `gradient_accumulation_steps` times the data-parallel ranks it is "
           "`global_batch_size`, and has to agree with it when both are given. How many sequences share a "
           "micro-batch is up to `bucket_tokens`",
       .unit = "sequences",
       .default_note = "none",
       .known_elsewhere = {"micro_batch_size", "train_micro_batch_size_per_gpu", "local_batch_size"}},
      {.name = "gradient_accumulation_steps",
       .group = group,
       .value = bound(OptionalCodec(Integer(positive)), &C::gradient_accumulation_steps),
       .help = "See `per_device_train_batch_size`, without which it means nothing",
       .default_note = "1, where `per_device_train_batch_size` is given"},
      {.name = "bucket_tokens",
       .group = group,
       .value = bound(OptionalCodec(Integer(positive), "auto"), &C::bucket_tokens),
       .help = "The most tokens that one rank holds in one micro-batch. Changes memory and speed, never the loss. "
               "`auto` in training: on a GPU what its memory holds; on a CPU the longest sample, or what one of "
               "context_parallel_size ranks holds of it, at least 4096 where memory allows it; no more than a global "
               "batch can fill. In `skrull plan`: as many as the memory of the hardware profile's device holds",
       .unit = "tokens",
       .known_elsewhere = {"max_tokens_per_gpu", "packing", "sample_packing", "neat_packing"}},
      {.name = "context_parallel_size",
       .group = group,
       .value = bound(Integer(between<std::int64_t>(1, most_ranks)), &C::context_parallel_size),
       .help = "Ranks that hold one replica's sequences together: a long sequence is sharded over several of them. It "
               "divides the number of ranks; the rest is data parallel. Changes memory and speed, never the loss",
       .unit = "ranks",
       .known_elsewhere = {"sequence_parallel_size", "context_parallel_degree", "cp_size", "ulysses_degree"}},
      {.name = "ranks_per_node",
       .group = group,
       .value = bound(OptionalCodec(Integer(between<std::int64_t>(1, most_ranks)), "auto"), &C::ranks_per_node),
       .help = "Ranks that share a node and its fast links, for the scheduler. `auto`: as the ranks are started; in "
               "`skrull plan` 8, or all ranks where they are fewer",
       .unit = "ranks",
       .known_elsewhere = {"nproc_per_node", "gpus_per_node", "num_gpus_per_node"}},
      {.name = "hardware_profile",
       .group = group,
       .value = bound(PathCodec(), &C::hardware_profile),
       .help = "What the scheduler takes the machine's speed to be: the name of a profile that ships (the files "
               "`configs/hardware/NAME.profile.json`), or the path of a profile. A wrong one makes slower plans, never "
               "wrong results",
       .default_note = "`cpu` on the CPU, `h100_4x8` on GPUs"},
      {.name = "scheduler.policy",
       .group = group,
       .value = bound(OneOf<SchedulingPolicy>(), &C::scheduler, &SchedulerConfig::policy),
       .help = "How the sequences of a global batch are spread over micro-batches and ranks",
       .known_elsewhere = {"packing_strategy"}},
  };
}

std::vector<Option> scheduler_options() {
  constexpr auto group = OptionGroup::batch;
  return {
      {.name = "scheduler.elastic_rings",
       .group = group,
       .value = bound(BooleanCodec(), &C::scheduler, &SchedulerConfig::elastic_rings),
       .help =
           "Whether policy `skrull` may shard a sequence over any number of a replica's ranks. `false`: over all of "
           "them or none, as in the paper"},
      {.name = "scheduler.search_moves",
       .group = group,
       .value = bound(OptionalCodec(Integer(count), "auto"), &C::scheduler, &SchedulerConfig::search_moves),
       .help = "Moves that the local search of policy `skrull` tries for one plan. The plan depends on this number, "
               "never on the machine's speed. `auto`: by the predicted time of the step",
       .unit = "moves"},
      {.name = "scheduler.budget_ms",
       .group = group,
       .value = bound(Number(at_least(0.0)), &C::scheduler, &SchedulerConfig::budget_ms),
       .help = "Ends the search of policy `skrull` after this time as well; 0: no limit. With a limit plans depend on "
               "the speed of the machine: runs are not reproducible",
       .unit = "ms"},
      {.name = "scheduler.threads",
       .group = group,
       .value = bound(Integer(between<std::int64_t>(1, most_ranks)), &C::scheduler, &SchedulerConfig::threads),
       .help = "Threads that policy `skrull` searches with. The plan does not depend on it",
       .unit = "threads"},
      {.name = "scheduler.cost_model",
       .group = group,
       .value = bound(OneOf<CostModelChoice>(), &C::scheduler, &SchedulerConfig::cost_model),
       .help = "What the scheduler takes the work of a sequence to be"},
  };
}

std::vector<Option> run_length_options() {
  constexpr auto group = OptionGroup::run_length;
  return {
      {.name = "num_train_epochs",
       .group = group,
       .value = bound(Number(greater_than(0.0)), &C::num_train_epochs),
       .help = "Passes over the dataset; may be a fraction",
       .unit = "epochs",
       .known_elsewhere = {"num_epochs", "epochs", "max_epochs"}},
      {.name = "max_steps",
       .group = group,
       .value = bound(Integer(positive, -1), &C::max_steps),
       .help = "Optimizer steps of the run, in place of `num_train_epochs`; -1: as many as the epochs have",
       .unit = "steps",
       .known_elsewhere = {"train_iters", "steps", "num_train_steps"}},
      {.name = "seed",
       .group = group,
       .value = bound(Integer(count), &C::seed),
       .help = "Seed of everything random: the order of the data, the evaluation split, fresh weights",
       .known_elsewhere = {"data_seed", "random_seed"},
       .fixed_on_resume = true},
  };
}

std::vector<Option> learning_rate_options() {
  constexpr auto group = OptionGroup::optimizer;
  return {
      {.name = "learning_rate",
       .group = group,
       .value = bound(Number(at_least(0.0)), &C::learning_rate),
       .help = "Peak learning rate",
       .known_elsewhere = {"lr"}},
      {.name = "lr_scheduler_type",
       .group = group,
       .value = bound(OneOf<LearningRateSchedule>(), &C::lr_scheduler_type),
       .help = "How the learning rate goes over the run",
       .known_elsewhere = {"lr_scheduler", "lr_decay_style"}},
      {.name = "warmup_ratio",
       .group = group,
       .value = bound(Number({.lower = 0.0, .upper = 1.0, .upper_open = true}), &C::warmup_ratio),
       .help = "Share of all steps over which the learning rate rises linearly from 0; `warmup_steps` overrides it",
       .known_elsewhere = {"lr_warmup_fraction"}},
      {.name = "warmup_steps",
       .group = group,
       .value = bound(Integer(count), &C::warmup_steps),
       .help =
           "Steps over which the learning rate rises linearly from 0; 0: by `warmup_ratio`. When both are given the "
           "steps win, as in Hugging Face tools",
       .unit = "steps",
       .known_elsewhere = {"num_warmup_steps", "lr_warmup_iters"}},
      {.name = "min_lr_ratio",
       .group = group,
       .value = bound(Number(between(0.0, 1.0)), &C::min_lr_ratio),
       .help = "Where `cosine_with_min_lr` and `wsd` end, as a share of `learning_rate`; other schedules refuse it",
       .known_elsewhere = {"min_lr_rate", "min_lr", "cosine_min_lr_ratio", "lr_scheduler_kwargs"}},
      {.name = "lr_decay_ratio",
       .group = group,
       .value = bound(Number({.lower = 0.0, .upper = 1.0, .lower_open = true}), &C::lr_decay_ratio),
       .help = "Share of all steps over which `wsd` decays at the end; other schedules refuse it",
       .known_elsewhere = {"num_decay_steps", "lr_wsd_decay_iters"}},
  };
}

std::vector<Option> optimizer_options() {
  constexpr auto group = OptionGroup::optimizer;
  const Range<double> decay_rate{.lower = 0.0, .upper = 1.0, .upper_open = true};
  return {
      {.name = "weight_decay",
       .group = group,
       .value = bound(Number(at_least(0.0)), &C::weight_decay),
       .help = "Decoupled weight decay of AdamW. Biases and norm weights are not decayed"},
      {.name = "adam_beta1",
       .group = group,
       .value = bound(Number(decay_rate), &C::adam_beta1),
       .help = "Decay rate of AdamW's first moment"},
      {.name = "adam_beta2",
       .group = group,
       .value = bound(Number(decay_rate), &C::adam_beta2),
       .help = "Decay rate of AdamW's second moment"},
      {.name = "adam_epsilon",
       .group = group,
       .value = bound(Number(greater_than(0.0)), &C::adam_epsilon),
       .help = "Added to the root of AdamW's second moment",
       .known_elsewhere = {"adam_eps"}},
      {.name = "max_grad_norm",
       .group = group,
       .value = bound(Number(at_least(0.0)), &C::max_grad_norm),
       .help = "Gradients are scaled down to this global norm when theirs is larger; 0: no clipping",
       .known_elsewhere = {"gradient_clipping", "clip_grad", "max_norm"}},
      {.name = "loss_reduction",
       .group = group,
       .value = bound(OneOf<LossReduction>(), &C::loss_reduction),
       .help = "What the loss of a step is the mean of; the same for any number of ranks and micro-batches",
       .known_elsewhere = {"calculate_per_token_loss", "average_tokens_across_devices"},
       .fixed_on_resume = true},
      {.name = "max_skipped_steps",
       .group = group,
       .value = bound(Integer(positive), &C::max_skipped_steps),
       .help = "A step whose loss or gradient norm is not finite is skipped; after this many in a row the run fails",
       .unit = "steps"},
  };
}

std::vector<Option> compute_options() {
  constexpr auto group = OptionGroup::compute;
  return {
      {.name = "device",
       .group = group,
       .value = bound(OneOf<DeviceChoice>(), &C::device),
       .help = "Where to compute",
       .known_elsewhere = {"use_cpu", "no_cuda", "device_map"}},
      {.name = "attention_engine",
       .group = group,
       .value = bound(OneOf<AttentionEngineChoice>(), &C::attention_engine),
       .help =
           "What computes attention on a GPU; the CPU has one engine and takes `auto` alone. Changes speed, and the "
           "loss by rounding alone",
       .known_elsewhere = {"attn_implementation", "flash_attn", "use_flash_attention", "attention_backend"}},
      {.name = "deterministic_attention",
       .group = group,
       .value = bound(BooleanCodec(), &C::deterministic_attention),
       .help =
           "Whether attention's gradients have the same bits every time. `false` lets `cudnn` compute them on compute "
           "capability 9 too, where it adds in no fixed order; on 10 its backward has one, and `native` always has. "
           "Such a run, and a run that is resumed, repeat within rounding only",
       .known_elsewhere = {"full_determinism", "use_deterministic_algorithms", "deterministic"}},
      {.name = "compute_dtype",
       .group = group,
       .value = bound(OneOf<DType>(compute_dtypes), &C::compute_dtype),
       .help = "Element type of weights and activations in the computation",
       .known_elsewhere = {"bf16", "fp16", "torch_dtype", "dtype", "mixed_precision"}},
      {.name = "gradient_checkpointing",
       .group = group,
       .value = bound(OneOf<GradientCheckpointing>(GradientCheckpointing::full, GradientCheckpointing::none),
                      &C::gradient_checkpointing),
       .help = "Saves memory by computing activations twice. Changes memory and speed, never the loss",
       .known_elsewhere = {"recompute_granularity", "activation_checkpointing", "activation_checkpoint"}},
      {.name = "zero_stage",
       .group = group,
       .value = bound(Integer(between<std::int64_t>(0, 3)), &C::zero_stage),
       .help =
           "What of the training state is divided among all ranks (ZeRO) in place of a copy on each. 0: nothing; 1: "
           "optimizer state and fp32 master weights; 2: gradients too; 3: parameters too. Changes memory and speed, "
           "never the loss. One rank has nothing to divide",
       .known_elsewhere = {"deepspeed", "zero_optimization", "fsdp", "use_distributed_optimizer",
                           "data_parallel_shard_degree"}},
      {.name = "reduce_gradients",
       .group = group,
       .value = bound(OneOf<GradientReductionChoice>(), &C::reduce_gradients),
       .help = "When gradients are summed over the ranks",
       .known_elsewhere = {"no_sync", "sync_each_batch"}},
      {.name = "offload_optimizer",
       .group = group,
       .value = bound(OneOf<OptimizerOffload>(), &C::offload_optimizer),
       .help = "Where optimizer state and fp32 master weights lie. Changes memory and speed, never the loss",
       .known_elsewhere = {"offload_optimizer_device", "cpu_offload", "optimizer_cpu_offload"}},
      {.name = "loss_chunk_tokens",
       .group = group,
       .value = bound(Integer(count), &C::loss_chunk_tokens),
       .help = "Tokens whose logits the loss head holds at a time; 0: chosen automatically",
       .unit = "tokens",
       .known_elsewhere = {"use_liger_kernel", "chunked_ce"}},
      {.name = "cpu_binding",
       .group = group,
       .value = bound(OneOf<CpuBinding>(), &C::cpu_binding),
       .help = "Which cores a rank may use (`mpirun` binds each of 1 or 2 ranks to a single core)"},
      {.name = "emulated_network.bytes_per_s",
       .group = group,
       .value = bound(Number(at_least(0.0)), &C::emulated_network, &EmulatedNetworkConfig::bytes_per_s),
       .help = "Bandwidth of every rank's link, in each direction, of a network to try schedules on: ranks of one "
               "machine exchange data as fast as this network would, at most. On the CPU; 0: no emulation",
       .unit = "bytes/s"},
      {.name = "emulated_network.latency_s",
       .group = group,
       .value = bound(Number(at_least(0.0)), &C::emulated_network, &EmulatedNetworkConfig::latency_s),
       .help = "What a message takes on the emulated network besides its bytes",
       .unit = "s"},
      {.name = "emulated_network.clock",
       .group = group,
       .value = bound(OneOf<EmulatedClock>(), &C::emulated_network, &EmulatedNetworkConfig::clock),
       .help = "How the emulated network keeps time"},
      {.name = "timeout_seconds",
       .group = group,
       .value = bound(Integer(count), &C::timeout_seconds),
       .help = "How long a rank waits for another one before the run ends, naming the rank that did not come, the "
               "operation and the step; 0: for ever. Must be longer than saving the model takes",
       .unit = "seconds",
       .aliases = {"ddp_timeout"},
       .known_elsewhere = {"distributed_timeout_minutes", "dist_timeout", "nccl_timeout"}},
  };
}

std::vector<Option> output_options() {
  constexpr auto group = OptionGroup::output;
  return {
      {.name = "output_dir",
       .group = group,
       .value = bound(PathCodec(), &C::output_dir),
       .help = "Folder for the trained model, checkpoints, `args.json`, `metrics.jsonl` and `run.log`",
       .known_elsewhere = {"save_dir", "save", "output", "logging_dir"},
       .required_for_training = true},
      {.name = "overwrite_output_dir",
       .group = group,
       .value = bound(BooleanCodec(), &C::overwrite_output_dir),
       .help = "Train even though `output_dir` is not empty; otherwise that is an error. Log, metrics and checkpoints "
               "of an "
               "earlier run are removed at the start, its model when the new one is saved"},
      {.name = "logging_steps",
       .group = group,
       .value = bound(Integer(positive), &C::logging_steps),
       .help = "Steps between two progress lines; `metrics.jsonl` gets every step",
       .unit = "steps",
       .known_elsewhere = {"log_interval", "logging_strategy"}},
      {.name = "eval_steps",
       .group = group,
       .value = bound(Integer(count), &C::eval_steps),
       .help = "Steps between two evaluations; 0: only at the end, if there is evaluation data",
       .unit = "steps",
       .known_elsewhere = {"eval_strategy", "evaluation_strategy", "eval_interval"}},
      {.name = "save_steps",
       .group = group,
       .value = bound(Integer(count), &C::save_steps),
       .help = "Steps between two checkpoints; 0: only the trained model at the end",
       .unit = "steps",
       .known_elsewhere = {"save_strategy", "save_interval"}},
      {.name = "save_total_limit",
       .group = group,
       .value = bound(Integer(count), &C::save_total_limit),
       .help = "How many checkpoints to keep, the newest; 0: all",
       .unit = "checkpoints",
       .known_elsewhere = {"keep_latest_k"}},
      {.name = "save_only_model",
       .group = group,
       .value = bound(BooleanCodec(), &C::save_only_model),
       .help = "Checkpoints of `save_steps` hold the model alone: smaller, but training can't continue from them. A "
               "run that is stopped by a signal saves everything all the same"},
      {.name = "save_dtype",
       .group = group,
       .value = bound(OptionalCodec(OneOf<DType>(compute_dtypes), "auto"), &C::save_dtype),
       .help = "Element type of the saved model; `auto`: that of the input model, tensor by tensor"},
      {.name = "trace",
       .group = group,
       .value = bound(BooleanCodec(), &C::trace),
       .help = "Record what every rank computes, sends and waits for in some steps, and write it to `trace.json` in "
               "`output_dir`, for ui.perfetto.dev",
       .known_elsewhere = {"profile", "use_profiler", "enable_profiling"}},
      {.name = "trace_first_step",
       .group = group,
       .value = bound(Integer(positive), &C::trace_first_step),
       .help = "First step to trace, counted from where the run starts or continues; in a shorter run the last one",
       .unit = "steps",
       .known_elsewhere = {"profile_step_start"}},
      {.name = "trace_steps",
       .group = group,
       .value = bound(Integer(positive), &C::trace_steps),
       .help = "How many steps to trace",
       .unit = "steps"},
      {.name = "resume_from_checkpoint",
       .group = group,
       .value = bound(ResumeCodec(), &C::resume_from_checkpoint),
       .help = "Where to continue. `auto`: at the newest valid checkpoint in `output_dir`, and from the start when "
               "there is none; nothing to do when the run there is finished. A path: at that checkpoint, or at the "
               "newest valid one of that run; an error when there is none",
       .default_note = "none",
       .known_elsewhere = {"resume", "load_step", "auto_resume_from_checkpoints", "resume_training"}},
  };
}

std::vector<Option> make_table() {
  std::vector<Option> table;
  for (auto* section : {model_options, data_options, batch_options, scheduler_options, run_length_options,
                        learning_rate_options, optimizer_options, compute_options, output_options}) {
    for (Option& option : section()) table.push_back(std::move(option));
  }
  return table;
}

using OptionsByName = std::unordered_map<std::string_view, const Option*>;

OptionsByName index_names() {
  OptionsByName index;
  for (const Option& option : option_table()) {
    index.emplace(option.name, &option);
    for (const std::string_view alias : option.aliases) index.emplace(alias, &option);
  }
  return index;
}

}  // namespace

const std::vector<Option>& option_table() {
  static const std::vector<Option> table = make_table();
  return table;
}

const Option* find_option(std::string_view name) {
  static const OptionsByName index = index_names();
  const auto found = index.find(name);
  return found == index.end() ? nullptr : found->second;
}

std::string suggestion_for(std::string_view unknown_key) {
  const std::string_view last_part = unknown_key.substr(unknown_key.rfind('.') + 1);
  std::vector<std::string> names;
  for (const Option& option : option_table()) {
    names.emplace_back(option.name);
    names.insert(names.end(), option.aliases.begin(), option.aliases.end());
    const auto& foreign = option.known_elsewhere;
    const bool known = std::find(foreign.begin(), foreign.end(), unknown_key) != foreign.end();
    if (known || option.name.substr(option.name.rfind('.') + 1) == last_part) {
      return fmt::format("; the option for this is {}", option.name);
    }
  }
  const std::string near = nearest(unknown_key, names);
  return near.empty() ? "" : fmt::format("; did you mean {}?", near);
}

std::string_view title_of(OptionGroup group) {
  switch (group) {
    case OptionGroup::model:
      return "Model";
    case OptionGroup::data:
      return "Data";
    case OptionGroup::batch:
      return "Batch and schedule";
    case OptionGroup::run_length:
      return "Length of the run";
    case OptionGroup::optimizer:
      return "Optimizer and loss";
    case OptionGroup::compute:
      return "Device, precision and memory";
    case OptionGroup::output:
      return "Output";
  }
  return "?";
}

OrderedJson::json_pointer pointer_to(std::string_view name) {
  std::string pointer = "/" + std::string(name);
  std::replace(pointer.begin(), pointer.end(), '.', '/');
  return OrderedJson::json_pointer(pointer);
}

}  // namespace skrull
