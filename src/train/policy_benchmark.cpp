#include "skrull/train/policy_benchmark.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <utility>

#include "skrull/comm/emulated_network.h"
#include "skrull/core/error.h"
#include "skrull/core/median.h"
#include "skrull/core/rng.h"
#include "skrull/data/loader.h"
#include "skrull/device/stream_stopwatch.h"
#include "skrull/model/transformer.h"
#include "skrull/parallel/micro_batch_attention.h"
#include "skrull/parallel/trainable_parameters.h"
#include "skrull/schedule/plan_io.h"
#include "skrull/train/datasets.h"
#include "skrull/train/profiler.h"

namespace skrull {
namespace {

/// A folder that is gone with this object, on all ranks the same.
class SharedFolder {
 public:
  explicit SharedFolder(ControlChannel& control) : control_(control) {
    path_ = control.broadcast(control.run_together([&]() -> std::string {
      if (control.rank() != 0) return "";
      std::string path = (std::filesystem::temp_directory_path() / "skrull-bench-XXXXXX").string();
      if (::mkdtemp(path.data()) == nullptr) throw_run_failure("{} can't be made", path);
      return path;
    }));
  }
  ~SharedFolder() {
    std::error_code ignored;
    if (control_.rank() == 0) std::filesystem::remove_all(path_, ignored);
  }
  SharedFolder(const SharedFolder&) = delete;
  SharedFolder& operator=(const SharedFolder&) = delete;
  const std::filesystem::path& path() const { return path_; }

 private:
  ControlChannel& control_;
  std::filesystem::path path_;
};

void write_random_rows(const std::filesystem::path& file, const std::vector<std::vector<std::int64_t>>& batches,
                       std::int64_t vocabulary) {
  std::ofstream stream(file);
  Rng rng(1, "policy benchmark");
  for (const auto& lengths : batches) {
    for (const std::int64_t length : lengths) {
      stream << R"({"input_ids":[)";
      for (std::int64_t i = 0; i < length; ++i) {
        stream << (i > 0 ? "," : "") << rng.below(static_cast<std::uint64_t>(vocabulary));
      }
      stream << "]}\n";
    }
  }
  if (!stream) throw_run_failure("{} can't be written", file.string());
}

class PolicyBench {
 public:
  PolicyBench(const PolicyBenchmarkOptions& options, const MpiSession& session);
  PolicyBenchmark run();

 private:
  struct Times {
    double step = 0.0;
    double communication = 0.0;
    double exposed = 0.0;
  };
  /// Of one policy: the plans of the batches, and what was measured, by batch and turn.
  struct Entry {
    MeasuredPolicy sums;
    std::vector<Plan> plans;
    std::vector<std::vector<Times>> times;
  };

  Entry plan(const std::string& policy, const CostModel& cost);
  Times run_batch(const Entry& entry, std::size_t index);
  Times agree(const Times& own);

  PolicyBenchmarkOptions options_;
  std::unique_ptr<Device> device_;
  std::unique_ptr<Communicator> plain_;
  ControlChannel control_;
  Topology topology_;
  HardwareProfile profile_;
  std::unique_ptr<Communicator> world_;
  std::unique_ptr<Communicator> context_;
  std::unique_ptr<Communicator> self_ = make_self_communicator();  ///< of the gradients: nothing is summed
  std::unique_ptr<TrainableParameters> parameters_;
  std::unique_ptr<Transformer> transformer_;
  std::unique_ptr<MicroBatchAttention> attention_;
  std::shared_ptr<const TokenStore> store_;
  std::vector<GlobalBatch> batches_;
};

PolicyBench::PolicyBench(const PolicyBenchmarkOptions& options, const MpiSession& session)
    : options_(options),
      device_(make_cpu_device(1, TimeSource::processor)),
      plain_(session.world()),
      control_(*plain_, device_->communication_stream()) {
  control_.run_together([&] {
    const int ranks = session.size();
    if (ranks % options.context_parallel != 0) {
      throw_invalid_input("{} ranks can't be cut into groups of {} context-parallel ranks", ranks,
                          options.context_parallel);
    }
    topology_ = {ranks / options.context_parallel, options.context_parallel, ranks};
    for (const auto& lengths : options.batches) check_schedule_request({lengths, topology_, options.bucket_tokens});
  });
  // All ranks at once, as in the steps: they share caches and memory.
  const ProfilerOptions profiler{options.compute_dtype, options.profile_seconds};
  profile_ = measure_hardware_profile(options.model, profiler, *device_).profile;
  profile_.name = "measured";
  const std::string of_rank_0 = control_.broadcast(hardware_profile_to_json(profile_));
  profile_ = parse_hardware_profile(of_rank_0, "the profile of rank 0");
  const LinkRate link = emulated_link({options.model.shape(), profile_}, {options.cluster_model, options.cluster},
                                      options.length_scale, options.bucket_tokens);
  profile_.intra_node = profile_.inter_node = link;
  world_ = make_emulated_communicator(session.world(), {link, link, 1});
  const int rank = session.rank();
  context_ = world_->split(rank / options.context_parallel, rank % options.context_parallel);

  const ParameterTable table(options.model);
  parameters_ = make_trainable_parameters(table, {options.compute_dtype, true}, *device_, *self_);
  parameters_->set_values(
      [&](const BlockOnHost& block) { initialize_parameters(1, options.model.initializer_range, table, block); });
  TransformerOptions transformer_options;
  transformer_options.compute_dtype = options.compute_dtype;
  transformer_options.max_tokens = options.bucket_tokens;
  transformer_ = std::make_unique<Transformer>(options.model, transformer_options, *device_);
  attention_ = make_micro_batch_attention(
      {attention_shape(options.model), options.compute_dtype, options.bucket_tokens, true}, *device_, *context_);

  const SharedFolder folder(control_);
  const std::filesystem::path rows = folder.path() / "rows.jsonl";
  control_.run_together([&] {
    if (rank == 0) write_random_rows(rows, options.batches, options.model.vocab_size);
  });
  TrainConfig config;
  config.cutoff_len = std::int64_t{1} << 40;
  store_ = open_token_store({rows}, config, nullptr, options.model.vocab_size, folder.path(), control_);
  std::int64_t sample = 0;
  for (const auto& lengths : options.batches) {
    std::vector<std::int64_t> samples(lengths.size());
    for (std::int64_t& index : samples) index = sample++;
    batches_.push_back(describe_batch(*store_, std::move(samples), LossWeighting::token_mean));
  }
}

PolicyBench::Entry PolicyBench::plan(const std::string& policy, const CostModel& cost) {
  Entry entry;
  entry.sums.policy = policy;
  entry.times.resize(batches_.size());
  for (const GlobalBatch& batch : batches_) {
    const std::string text = control_.run_together([&]() -> std::string {
      if (control_.rank() != 0) return "";
      PlanFile file;
      file.plan = make_plan(policy, {batch.lengths, topology_, options_.bucket_tokens}, cost);
      file.model = cost.model();
      return plan_to_json(file);
    });
    entry.plans.push_back(parse_plan(control_.broadcast(text), "the plan of rank 0").plan);
    entry.sums.predicted += evaluate_plan(entry.plans.back(), cost).schedule_seconds;
    entry.sums.micro_batches += entry.plans.back().micro_batch_count();
  }
  return entry;
}

PolicyBench::Times PolicyBench::run_batch(const Entry& entry, std::size_t index) {
  const int rank = control_.rank();
  const StepBatches batches(*store_, batches_[index], entry.plans[index], rank / topology_.context_parallel,
                            rank % topology_.context_parallel);
  start_together(*device_, *world_);
  device_->timeline().take();
  const StreamStopwatch watch(device_->compute_stream());
  parameters_->begin_step(batches.micro_batch_count());
  for (std::int64_t i = 0; i < batches.micro_batch_count(); ++i) {
    const MicroBatch batch = batches.micro_batch(i);
    attention_->begin(batch);
    transformer_->forward_backward(batch, *parameters_, *attention_, *parameters_);
  }
  parameters_->finish_gradients();
  const double seconds = watch.seconds();
  const TimelineSums sums = sum_spans(device_->timeline().take());
  return {seconds, sums.communication, sums.waiting};
}

PolicyBench::Times PolicyBench::agree(const Times& own) {
  std::array sums{own.communication, own.exposed};
  control_.sum(sums);
  const double ranks = control_.size();
  return {control_.max(own.step), sums[0] / ranks, sums[1] / ranks};
}

PolicyBenchmark PolicyBench::run() {
  const CostModel cost(options_.model.shape(), profile_);
  device_->timeline().set_detail(TimelineDetail::communication_and_waits);
  std::vector<Entry> entries;
  for (const std::string& policy : options_.policies) entries.push_back(plan(policy, cost));
  // In turns, so that a machine whose speed drifts is fair to all.
  for (std::int64_t turn = 0; turn < options_.turns; ++turn) {
    for (std::size_t index = 0; index < batches_.size(); ++index) {
      for (Entry& entry : entries) entry.times[index].push_back(agree(run_batch(entry, index)));
    }
  }
  PolicyBenchmark result;
  result.data_parallel = topology_.data_parallel;
  result.context_parallel = topology_.context_parallel;
  result.profile = profile_;
  for (Entry& entry : entries) {
    const auto median_of = [](const std::vector<Times>& turns, double Times::*member) {
      std::vector<double> values;
      values.reserve(turns.size());
      for (const Times& times : turns) values.push_back(times.*member);
      return median(std::move(values));
    };
    for (const std::vector<Times>& turns : entry.times) {
      entry.sums.measured += median_of(turns, &Times::step);
      entry.sums.communication += median_of(turns, &Times::communication);
      entry.sums.exposed += median_of(turns, &Times::exposed);
    }
    result.policies.push_back(std::move(entry.sums));
  }
  return result;
}

}  // namespace

LinkRate emulated_link(const ModelOnHardware& here, const ModelOnHardware& cluster, double length_scale,
                       std::int64_t tokens) {
  // With each layer's share of the head, which is there too.
  const auto layer_seconds_per_token = [](const ModelOnHardware& on, std::int64_t count) {
    return CostModel(on.model, on.hardware).linear_seconds_per_token(count) / static_cast<double>(on.model.num_layers);
  };
  const auto tokens_there = std::max<std::int64_t>(1, std::llround(static_cast<double>(tokens) / length_scale));
  const double slower =
      length_scale * layer_seconds_per_token(here, tokens) / layer_seconds_per_token(cluster, tokens_there);
  const double smaller = length_scale * static_cast<double>(here.model.key_value_elements_per_token()) /
                         static_cast<double>(cluster.model.key_value_elements_per_token());
  const LinkRate& link = cluster.hardware.intra_node;
  return {link.bytes_per_s * smaller / slower, link.latency_s * slower};
}

PolicyBenchmark bench_policies(const PolicyBenchmarkOptions& options, const MpiSession& session) {
  return PolicyBench(options, session).run();
}

}  // namespace skrull
