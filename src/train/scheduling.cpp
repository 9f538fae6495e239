#include "skrull/train/scheduling.h"

#include "skrull/core/error.h"
#include "skrull/train/rank_session.h"

namespace skrull {

void check_trainable_schedule(const TrainConfig& config) {
  if (config.scheduler.policy == SchedulingPolicy::sorted) {
    throw_invalid_input(
        "scheduler.policy sorted changes which sequences form a batch, so it is no policy for training: use data_order "
        "sorted_batches with scheduler.policy deepspeed");
  }
}

Recompute recompute_of(const TrainConfig& config) {
  switch (config.gradient_checkpointing) {
    case GradientCheckpointing::none:
      return Recompute::none;
    case GradientCheckpointing::selective:
      return Recompute::selective;
    case GradientCheckpointing::full:
      return Recompute::full;
  }
  return Recompute::selective;
}

MemoryOptions memory_options(const TrainConfig& config, const Qwen2Config& model, const Topology& topology) {
  MemoryOptions options;
  options.compute_dtype = config.compute_dtype;
  options.recompute = recompute_of(config);
  options.zero_stage = static_cast<int>(config.zero_stage);
  options.optimizer_on_host = config.offload_optimizer == OptimizerOffload::cpu;
  options.world_size = topology.data_parallel * topology.context_parallel;
  options.largest_ring = topology.context_parallel;
  options.tied_head = model.tie_word_embeddings;
  options.loss_chunk_tokens = config.loss_chunk_tokens;
  return options;
}

HardwareProfile choose_hardware_profile(const TrainConfig& config) {
  if (!config.hardware_profile.empty()) return find_hardware_profile(config.hardware_profile.string());
  return find_hardware_profile(uses_cuda(config) ? "h100_4x8" : "cpu");
}

SearchOptions search_options(const TrainConfig& config) {
  SearchOptions search;
  search.elastic_rings = config.scheduler.elastic_rings;
  search.moves = config.scheduler.search_moves.value_or(search.moves);
  search.budget_ms = config.scheduler.budget_ms;
  search.threads = static_cast<int>(config.scheduler.threads);
  return search;
}

std::shared_ptr<const CostModel> make_cost_model(const TrainConfig& config, const Qwen2Config& model) {
  const FlopsModel flops =
      config.scheduler.cost_model == CostModelChoice::paper ? FlopsModel::paper : FlopsModel::exact;
  return std::make_shared<const CostModel>(model.shape(), choose_hardware_profile(config), recompute_of(config), flops);
}

}  // namespace skrull
