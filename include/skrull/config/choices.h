#pragma once
// The choices that options offer: each enum with its spellings in a config and what they mean, side by side.

#include <array>
#include <string_view>
#include <type_traits>

#include "skrull/core/dtype.h"

namespace skrull {

/// One value of an enum option: how it is written in a config and what it does.
template <class Enum>
struct Choice {
  Enum value{};
  std::string_view name;
  std::string_view help;
};

/// All choices of `Enum`, in the order in which they are documented. Specialised beside each enum below.
template <class Enum>
inline constexpr std::array<Choice<Enum>, 0> choices_of{};

enum class Initialization { pretrained, random };
template <>
inline constexpr auto choices_of<Initialization> = std::to_array<Choice<Initialization>>({
    {Initialization::pretrained, "pretrained", "load the weights of the model folder"},
    {Initialization::random, "random", "fresh weights drawn from `seed`; the folder's config.json gives the shape"},
});

enum class OverlengthPolicy { drop, truncate, error };
template <>
inline constexpr auto choices_of<OverlengthPolicy> = std::to_array<Choice<OverlengthPolicy>>({
    {OverlengthPolicy::drop, "drop", "leave the row out and count it in the row report"},
    {OverlengthPolicy::truncate, "truncate", "keep its first `cutoff_len` tokens"},
    {OverlengthPolicy::error, "error", "stop and name the row"},
});

enum class DataOrder { shuffled, sequential, sorted_batches };
template <>
inline constexpr auto choices_of<DataOrder> = std::to_array<Choice<DataOrder>>({
    {DataOrder::shuffled, "shuffled", "a new order each epoch, drawn from `seed`"},
    {DataOrder::sequential, "sequential", "the order of the files, every epoch"},
    {DataOrder::sorted_batches, "sorted_batches", "batches of rows of similar length, the batches in shuffled order"},
});

enum class LearningRateSchedule { constant, constant_with_warmup, linear, cosine, cosine_with_min_lr, wsd };
template <>
inline constexpr auto choices_of<LearningRateSchedule> = std::to_array<Choice<LearningRateSchedule>>({
    {LearningRateSchedule::constant, "constant", "`learning_rate` throughout, no warm-up"},
    {LearningRateSchedule::constant_with_warmup, "constant_with_warmup", "warm-up, then `learning_rate`"},
    {LearningRateSchedule::linear, "linear", "warm-up, then a straight line to 0"},
    {LearningRateSchedule::cosine, "cosine", "warm-up, then half a cosine to 0"},
    {LearningRateSchedule::cosine_with_min_lr, "cosine_with_min_lr",
     "warm-up, then half a cosine to `min_lr_ratio` x `learning_rate`"},
    {LearningRateSchedule::wsd, "wsd",
     "warm-up, stable, and over the last `lr_decay_ratio` of the steps down to `min_lr_ratio` x `learning_rate`"},
});

enum class LossReduction { token_mean, sequence_mean };
template <>
inline constexpr auto choices_of<LossReduction> = std::to_array<Choice<LossReduction>>({
    {LossReduction::token_mean, "token_mean", "every supervised token of the global batch weighs the same"},
    {LossReduction::sequence_mean, "sequence_mean",
     "every sequence weighs the same: the mean of the sequences' mean losses"},
});

enum class SchedulingPolicy { skrull, packed, packed_balanced, deepspeed, sorted, skrull_paper, round_robin };
template <>
inline constexpr auto choices_of<SchedulingPolicy> = std::to_array<Choice<SchedulingPolicy>>({
    {SchedulingPolicy::skrull, "skrull",
     "sequences whole or sharded over rings of any size, over micro-batches and replicas, by predicted time, improved "
     "by a local search"},
    {SchedulingPolicy::packed, "packed",
     "sequences in arrival order, first fit into micro-batches, each sharded over all context-parallel ranks"},
    {SchedulingPolicy::packed_balanced, "packed-balanced",
     "`packed`, with the replicas balanced by the predicted time of their sequences"},
    {SchedulingPolicy::deepspeed, "deepspeed",
     "one sequence per micro-batch, sharded over all context-parallel ranks; a baseline to compare with"},
    {SchedulingPolicy::sorted, "sorted",
     "LongAlign's sorted batching; for `skrull plan` only: it changes which sequences form a batch, so training takes "
     "`data_order: sorted_batches` with `deepspeed` for it"},
    {SchedulingPolicy::skrull_paper, "skrull-paper",
     "the heuristics of the Skrull paper (arXiv 2505.19609): short sequences whole on one rank, long ones sharded when "
     "memory asks for it"},
    {SchedulingPolicy::round_robin, "round-robin",
     "`skrull-paper` with whole sequences dealt to the ranks in turn; an ablation to compare with"},
});

enum class CostModelChoice { exact, paper };
template <>
inline constexpr auto choices_of<CostModelChoice> = std::to_array<Choice<CostModelChoice>>({
    {CostModelChoice::exact, "exact", "the FLOPs of the model, causal attention counted as half"},
    {CostModelChoice::paper, "paper",
     "those of the Skrull paper, which assume an MLP of 8/3 hidden sizes and attention over all pairs; for comparison"},
});

enum class DeviceChoice { automatic, cpu, cuda };
template <>
inline constexpr auto choices_of<DeviceChoice> = std::to_array<Choice<DeviceChoice>>({
    {DeviceChoice::automatic, "auto", "a GPU if this build and this machine have one, else the CPU"},
    {DeviceChoice::cpu, "cpu", "the CPU"},
    {DeviceChoice::cuda, "cuda", "the GPU; an error where there is none or the build has no CUDA"},
});

enum class AttentionEngineChoice { automatic, native, cudnn };
template <>
inline constexpr auto choices_of<AttentionEngineChoice> = std::to_array<Choice<AttentionEngineChoice>>({
    {AttentionEngineChoice::automatic, "auto",
     "`cudnn` on compute capability 9 and 10 where the build and the machine have it and it agrees with `native` in a "
     "check at the start, else `native`"},
    {AttentionEngineChoice::native, "native", "this program's own kernels, on every GPU and for every shape"},
    {AttentionEngineChoice::cudnn, "cudnn",
     "cuDNN for whole sequences in bfloat16, on compute capability 8, 9 and 10, `native` for the rest; an error where "
     "there is no cuDNN"},
});

enum class CpuBinding { automatic, keep };
template <>
inline constexpr auto choices_of<CpuBinding> = std::to_array<Choice<CpuBinding>>({
    {CpuBinding::automatic, "auto", "share the node's cores evenly among its ranks when they are bound too tightly"},
    {CpuBinding::keep, "keep", "leave the binding as the launcher set it"},
});

enum class EmulatedClock { wall, processor };
template <>
inline constexpr auto choices_of<EmulatedClock> = std::to_array<Choice<EmulatedClock>>({
    {EmulatedClock::wall, "wall", "a transfer that the network would take longer for is waited for"},
    {EmulatedClock::processor, "processor",
     "times are counted, not waited for: each rank computes with one thread, and its time is that thread's, as if it "
     "had a core of its own"},
});

enum class GradientCheckpointing { none, selective, full };
template <>
inline constexpr auto choices_of<GradientCheckpointing> = std::to_array<Choice<GradientCheckpointing>>({
    {GradientCheckpointing::none, "none", "keep every activation (`false` is accepted too)"},
    {GradientCheckpointing::selective, "selective",
     "keep what takes long, attention and matrix products; recompute norms and the MLP's activation, which costs a "
     "pass "
     "over memory each"},
    {GradientCheckpointing::full, "full",
     "keep only each block's input and recompute the rest in the backward pass (`true` is accepted too)"},
});

enum class GradientReductionChoice { micro_batch, step };
template <>
inline constexpr auto choices_of<GradientReductionChoice> = std::to_array<Choice<GradientReductionChoice>>({
    {GradientReductionChoice::micro_batch, "micro_batch",
     "behind the backward of every micro-batch: all values of `zero_stage` train to the same bits"},
    {GradientReductionChoice::step, "step",
     "once, behind the last micro-batch of a step: less communication; for `zero_stage` 0 and 1"},
});

enum class OptimizerOffload { none, cpu };
template <>
inline constexpr auto choices_of<OptimizerOffload> = std::to_array<Choice<OptimizerOffload>>({
    {OptimizerOffload::none, "none", "optimizer state and fp32 master weights in the device's memory"},
    {OptimizerOffload::cpu, "cpu",
     "in host memory, updated by the CPU behind the start of the next step: for models whose state does not fit"},
});

/// The element types in which a model can be computed and saved.
inline constexpr auto compute_dtypes = std::to_array<Choice<DType>>({
    {DType::float32, "float32", "32 bits, the reference"},
    {DType::bfloat16, "bfloat16", "half the memory; in training, master weights and accumulators stay float32"},
});

/// The spelling of an enum value in configs, for messages and logs.
template <class Enum>
requires(std::is_enum_v<Enum>&& choices_of<Enum>.size() > 0) constexpr std::string_view name_of(Enum value) {
  for (const auto& choice : choices_of<Enum>) {
    if (choice.value == value) return choice.name;
  }
  return "?";
}

}  // namespace skrull
