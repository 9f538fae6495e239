#include "skrull/train/planning.h"

#include <algorithm>

#include "skrull/comm/communicator.h"
#include "skrull/comm/rank_grid.h"
#include "skrull/core/error.h"
#include "skrull/core/stopwatch.h"
#include "skrull/core/text.h"
#include "skrull/data/loader.h"
#include "skrull/device/device.h"
#include "skrull/schedule/length_generator.h"
#include "skrull/schedule/zigzag.h"
#include "skrull/train/datasets.h"
#include "skrull/train/run_folder.h"
#include "skrull/train/scheduling.h"

namespace skrull {
namespace {

constexpr int usual_ranks_per_node = 8;

Topology topology_of(const TrainConfig& config, int ranks) {
  const int context_parallel = static_cast<int>(config.context_parallel_size);
  const int world = ranks > 0 ? ranks : context_parallel;
  const RankGrid grid = make_rank_grid(world, 0, context_parallel);
  const auto per_node = config.ranks_per_node.value_or(std::min(world, usual_ranks_per_node));
  return {grid.data_parallel, grid.context_parallel, static_cast<int>(per_node)};
}

/// A rank's device memory: the profile's, else an even share of what this machine has free.
class DeviceMemory {
 public:
  DeviceMemory(const HardwareProfile& profile, const Topology& topology) : is_of_host_(!profile.device_memory_bytes) {
    const int ranks = std::min(topology.data_parallel * topology.context_parallel, topology.ranks_per_node);
    bytes_ = is_of_host_ ? make_cpu_device(1)->free_bytes() / ranks : *profile.device_memory_bytes;
  }

  /// What is left of it beside what the rank keeps in host memory.
  std::int64_t bytes_for(const MemoryModel& memory) const { return bytes_ - (is_of_host_ ? memory.host_bytes() : 0); }
  std::int64_t bytes() const { return bytes_; }

 private:
  bool is_of_host_;
  std::int64_t bytes_ = 0;
};

std::int64_t automatic_bucket(const PlanningSetup& setup) {
  const std::int64_t tokens = setup.memory->most_tokens(setup.device_memory_bytes);
  if (tokens >= 1) return tokens;
  throw_invalid_input(
      "bucket_tokens auto: the training state takes {} of a rank, its device has {}: {}use more ranks, or give "
      "bucket_tokens",
      format_bytes(setup.memory->fixed().total()), format_bytes(setup.device_memory_bytes),
      setup.zero_stage < 3 ? "raise zero_stage to 3, " : "");
}

std::vector<LengthBatch> take(std::vector<LengthBatch> batches, std::int64_t first, std::int64_t count,
                              const std::string& source) {
  const auto available = static_cast<std::int64_t>(batches.size());
  if (first + count > available) {
    throw_invalid_input("{} has {} global batches, 0 to {}: there is no batch {}", source, available, available - 1,
                        std::max(first, available));
  }
  batches.erase(batches.begin(), batches.begin() + first);
  batches.resize(static_cast<std::size_t>(count));
  return batches;
}

}  // namespace

PlanningSetup set_up_planning(const TrainConfig& config, int ranks) {
  PlanningSetup setup;
  setup.model = load_qwen2_config(config.model_name_or_path);
  setup.topology = topology_of(config, ranks);
  setup.cost = make_cost_model(config, setup.model);
  setup.search = search_options(config);
  setup.global_batch_size = resolve_global_batch_size(config, setup.topology.data_parallel);
  const MemoryOptions memory = memory_options(config, setup.model, setup.topology);
  setup.zero_stage = memory.zero_stage;
  setup.memory = std::make_shared<const MemoryModel>(setup.model.shape(), memory);
  setup.device_memory_bytes = DeviceMemory(setup.cost->profile(), setup.topology).bytes_for(*setup.memory);
  setup.automatic_bucket = !config.bucket_tokens;
  setup.bucket_tokens = config.bucket_tokens ? *config.bucket_tokens : automatic_bucket(setup);
  return setup;
}

MemoryForecast forecast_memory(const TrainConfig& config, int ranks) {
  const Qwen2Config model = load_qwen2_config(config.model_name_or_path);
  MemoryForecast forecast;
  forecast.topology = topology_of(config, ranks);
  forecast.tokens =
      config.bucket_tokens.value_or(largest_zigzag_shard(config.cutoff_len, forecast.topology.context_parallel));
  const DeviceMemory device(choose_hardware_profile(config), forecast.topology);
  forecast.device_memory_bytes = device.bytes();
  MemoryOptions options = memory_options(config, model, forecast.topology);
  for (options.zero_stage = 0; options.zero_stage <= 3; ++options.zero_stage) {
    for (const Recompute recompute : {Recompute::none, Recompute::selective, Recompute::full}) {
      options.recompute = recompute;
      const MemoryModel memory(model.shape(), options);
      forecast.layouts.push_back({options.zero_stage, recompute, memory.by_category(forecast.tokens),
                                  memory.bytes(forecast.tokens), memory.host_bytes(),
                                  std::max<std::int64_t>(0, memory.most_tokens(device.bytes_for(memory)))});
    }
  }
  return forecast;
}

std::vector<LengthBatch> batches_of_file(const std::filesystem::path& file, const PlanningSetup& setup,
                                         std::int64_t first, std::int64_t count) {
  return take(read_length_file(file, setup.global_batch_size), first, count, file.string());
}

std::vector<LengthBatch> drawn_batches(const std::string& distribution, const TrainConfig& config,
                                       const PlanningSetup& setup, std::int64_t first, std::int64_t count) {
  const std::int64_t longest = std::min(config.cutoff_len, setup.bucket_tokens * setup.topology.context_parallel);
  std::vector<LengthBatch> batches;
  for (auto& lengths : draw_length_batches(find_length_distribution(distribution), first + count,
                                           setup.global_batch_size, longest, static_cast<std::uint64_t>(config.seed))) {
    batches.push_back({std::move(lengths), [distribution](std::size_t sequence) {
                         return fmt::format("{}, drawn sequence {}", distribution, sequence);
                       }});
  }
  return take(std::move(batches), first, count, distribution);
}

std::vector<LengthBatch> batches_of_dataset(const TrainConfig& config, const PlanningSetup& setup, std::int64_t first,
                                            std::int64_t count) {
  TrainConfig of_training = config;
  of_training.eval_dataset.clear();  // lengths of evaluation rows are of no use here
  const std::unique_ptr<TextEncoder> encoder = load_text_encoder(config);
  const std::unique_ptr<Communicator> self = make_self_communicator();
  ControlChannel control(*self);
  const Dataset data = load_datasets(of_training, encoder.get(), setup.model.vocab_size,
                                     RunFolder(config.output_dir).cache_folder(), control)
                           .train;
  LoaderOptions options;
  options.global_batch_size = setup.global_batch_size;
  options.order = config.data_order;
  options.seed = static_cast<std::uint64_t>(config.seed);
  options.cost = setup.cost;
  Loader loader(*data.store, data.samples, options);
  const std::int64_t steps = total_steps(loader.steps_per_epoch(), config.num_train_epochs, config.max_steps);
  if (first + count > steps) {
    throw_invalid_input("the run has {} steps, 0 to {}: there is no global batch {}", steps, steps - 1,
                        std::max(first, steps));
  }
  std::vector<LengthBatch> batches;
  for (std::int64_t step = first; step < first + count; ++step) {
    GlobalBatch batch = loader.global_batch(step);
    batches.push_back({std::move(batch.lengths), [store = data.store, samples = std::move(batch.samples)](
                                                     std::size_t i) { return store->describe(samples.at(i)); }});
  }
  return batches;
}

void check_batch(const LengthBatch& batch, const PlanningSetup& setup) {
  const Topology& topology = setup.topology;
  const std::int64_t bucket = setup.bucket_tokens;
  if (batch.lengths.size() < static_cast<std::size_t>(topology.data_parallel)) {
    throw_invalid_input(
        "a global batch of {} sequences for {} replicas leaves some without work: raise global_batch_size or use fewer "
        "ranks",
        batch.lengths.size(), topology.data_parallel);
  }
  for (std::size_t i = 0; i < batch.lengths.size(); ++i) {
    const std::int64_t length = batch.lengths[i];
    const std::int64_t least_bucket = largest_zigzag_shard(length, topology.context_parallel);
    if (least_bucket <= bucket) continue;
    throw_invalid_input(
        "{}: a sequence of {} tokens fits no ring of {} context-parallel ranks with bucket_tokens {}{}: set "
        "bucket_tokens to at least {}, or context_parallel_size to at least {}",
        batch.describe_origin(i), length, topology.context_parallel, bucket,
        setup.automatic_bucket
            ? fmt::format(" (auto, from a device memory of {})", format_bytes(setup.device_memory_bytes))
            : "",
        least_bucket, smallest_ring(length, bucket));
  }
}

JudgedPlan plan_batch(const LengthBatch& batch, const std::string& policy, const PlanningSetup& setup) {
  check_batch(batch, setup);
  PlanFile file;
  file.model = setup.model.shape();
  const ScheduleRequest request{batch.lengths, setup.topology, setup.bucket_tokens};
  const Stopwatch watch;
  file.plan = make_plan(policy, request, *setup.cost, setup.search);
  file.scheduling_seconds = watch.seconds();
  return judge_plan(std::move(file), *setup.cost);
}

JudgedPlan judge_plan(PlanFile file, const CostModel& cost) {
  JudgedPlan judged;
  const Plan& plan = file.plan;
  judged.cost = evaluate_plan(plan, cost);
  judged.bound = lower_bound({plan.lengths, plan.topology, plan.bucket_tokens}, cost);
  for (const auto& replica : judged.cost.rank_loads) {
    auto& peaks = judged.peak_tokens.emplace_back(static_cast<std::size_t>(plan.topology.context_parallel));
    for (const auto& micro_batch : replica) {
      for (std::size_t rank = 0; rank < micro_batch.size(); ++rank) {
        peaks[rank] = std::max(peaks[rank], micro_batch[rank].tokens);
      }
    }
  }
  file.predicted_step_seconds = judged.cost.schedule_seconds;
  file.bound_seconds = judged.bound.seconds;
  judged.file = std::move(file);
  return judged;
}

}  // namespace skrull
