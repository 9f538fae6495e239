#include "skrull/schedule/plan_io.h"

#include <algorithm>

#include "checked_json.h"
#include "skrull/core/file.h"

namespace skrull {
namespace {

constexpr std::string_view plan_format = "skrull-plan/1";
constexpr std::int64_t most_ranks = 1 << 20;

OrderedJson to_json(const PlannedMicroBatch& micro_batch) {
  OrderedJson distributed = OrderedJson::array();
  for (const DistributedSequence& one : micro_batch.distributed) {
    distributed.push_back({{"sequence", one.sequence}, {"ranks", one.ranks}});
  }
  return {{"local", micro_batch.local}, {"distributed", std::move(distributed)}};
}

OrderedJson to_json(const std::vector<PlannedMicroBatch>& replica) {
  const auto last = std::find_if(replica.rbegin(), replica.rend(),
                                 [](const PlannedMicroBatch& micro_batch) { return !is_empty(micro_batch); });
  OrderedJson micro_batches = OrderedJson::array();
  for (auto it = replica.begin(); it != last.base(); ++it) micro_batches.push_back(to_json(*it));
  return micro_batches;
}

OrderedJson predicted(const PlanFile& file) {
  OrderedJson json = {{"step_seconds", file.predicted_step_seconds}};
  if (!file.bound_seconds) return json;
  json["bound_seconds"] = *file.bound_seconds;
  json["gap"] = *file.bound_seconds > 0.0 ? file.predicted_step_seconds / *file.bound_seconds - 1.0 : 0.0;
  return json;
}

ModelShape read_model(const CheckedJson& json) {
  ModelShape model;
  for (const NamedModelSize& size : model_sizes) model.*size.member = json.at(size.name).integer(1);
  return model;
}

Topology read_topology(const CheckedJson& json) {
  Topology topology;
  for (const NamedTopologySize& size : topology_sizes) {
    topology.*size.member = static_cast<int>(json.at(size.name).integer(1, most_ranks));
  }
  return topology;
}

/// Reads the micro-batches of one plan, whose topology and number of sequences are known.
class MicroBatchReader {
 public:
  explicit MicroBatchReader(const Plan& plan)
      : ranks_(plan.topology.context_parallel), last_sequence_(static_cast<std::int64_t>(plan.lengths.size()) - 1) {}

  PlannedMicroBatch read(const CheckedJson& json) const {
    PlannedMicroBatch micro_batch;
    const auto ranks = static_cast<std::size_t>(ranks_);
    const std::string expected = fmt::format("one list of sequences for each of {} context-parallel ranks", ranks_);
    for (const CheckedJson& rank : json.at("local").elements(ranks, expected)) {
      auto& sequences = micro_batch.local.emplace_back();
      for (const CheckedJson& sequence : rank.elements()) sequences.push_back(sequence.integer(0, last_sequence_));
    }
    for (const CheckedJson& entry : json.at("distributed").elements()) {
      DistributedSequence& distributed = micro_batch.distributed.emplace_back();
      distributed.sequence = entry.at("sequence").integer(0, last_sequence_);
      for (const CheckedJson& rank : entry.at("ranks").elements()) {
        distributed.ranks.push_back(static_cast<int>(rank.integer(0, ranks_ - 1)));
      }
    }
    return micro_batch;
  }

 private:
  int ranks_;
  std::int64_t last_sequence_;
};

}  // namespace

std::string plan_to_json(const PlanFile& file) {
  const Plan& plan = file.plan;
  OrderedJson model = OrderedJson::object();
  for (const NamedModelSize& size : model_sizes) model[size.name] = file.model.*size.member;
  OrderedJson topology = OrderedJson::object();
  for (const NamedTopologySize& size : topology_sizes) topology[size.name] = plan.topology.*size.member;
  OrderedJson micro_batches = OrderedJson::array();
  for (const auto& replica : plan.micro_batches) micro_batches.push_back(to_json(replica));
  const OrderedJson json = {{"format", plan_format},
                            {"policy", plan.policy},
                            {"model", std::move(model)},
                            {"topology", std::move(topology)},
                            {"bucket_tokens", plan.bucket_tokens},
                            {"sequences", plan.lengths},
                            {"micro_batches", std::move(micro_batches)},
                            {"predicted", predicted(file)},
                            {"scheduling_seconds", file.scheduling_seconds}};
  return json.dump() + "\n";
}

void write_plan(const std::filesystem::path& path, const PlanFile& file) {
  write_file_atomically(path, plan_to_json(file));
}

PlanFile parse_plan(const std::string& text, const std::string& name) {
  const CheckedJsonDocument document(text, name, plan_format);
  const CheckedJson root = document.root();
  PlanFile file;
  Plan& plan = file.plan;
  plan.policy = root.at("policy").text();
  file.model = read_model(root.at("model"));
  plan.topology = read_topology(root.at("topology"));
  plan.bucket_tokens = root.at("bucket_tokens").integer(1);
  for (const CheckedJson& length : root.at("sequences").elements()) plan.lengths.push_back(length.integer(1));
  const MicroBatchReader reader(plan);
  const auto replicas = static_cast<std::size_t>(plan.topology.data_parallel);
  const std::string expected = fmt::format("one list of micro-batches for each of {} replicas", replicas);
  for (const CheckedJson& replica : root.at("micro_batches").elements(replicas, expected)) {
    auto& micro_batches = plan.micro_batches.emplace_back();
    for (const CheckedJson& micro_batch : replica.elements()) micro_batches.push_back(reader.read(micro_batch));
  }
  even_out(plan);  // a file leaves empty micro-batches out
  const CheckedJson prediction = root.at("predicted");
  file.predicted_step_seconds = prediction.at("step_seconds").number_at_least(0.0);
  if (const auto bound = prediction.find("bound_seconds")) file.bound_seconds = bound->number_at_least(0.0);
  file.scheduling_seconds = root.at("scheduling_seconds").number_at_least(0.0);
  try {
    validate_plan(plan);
  } catch (const RunFailure& broken_rule) {
    throw_invalid_input("{}: {}", name, broken_rule.what());
  }
  return file;
}

PlanFile read_plan(const std::filesystem::path& path) {
  return parse_plan(read_file(path), path.string());
}

}  // namespace skrull
