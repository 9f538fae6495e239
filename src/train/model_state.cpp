#include "skrull/train/model_state.h"

#include <algorithm>
#include <exception>
#include <functional>
#include <vector>

#include "skrull/core/error.h"
#include "skrull/data/tokenizer.h"
#include "skrull/schedule/memory_model.h"
#include "skrull/schedule/zigzag.h"
#include "skrull/train/scheduling.h"

namespace skrull {
namespace {

constexpr std::int64_t least_automatic_bucket = 4096;
constexpr std::string_view end_of_turn_token = "<|im_end|>";

/// Tokens of the `sequences` longest samples together.
std::int64_t fullest_batch(const Dataset& dataset, std::int64_t sequences) {
  std::vector<std::int64_t> lengths;
  for (const std::int64_t sample : dataset.samples) lengths.push_back(dataset.store->length(sample));
  std::sort(lengths.begin(), lengths.end(), std::greater<>());
  if (static_cast<std::int64_t>(lengths.size()) > sequences) lengths.resize(static_cast<std::size_t>(sequences));
  std::int64_t total = 0;
  for (const std::int64_t length : lengths) total += length;
  return total;
}

std::int64_t longest_sample(const Dataset& dataset) {
  std::int64_t longest = 0;
  for (const std::int64_t sample : dataset.samples) longest = std::max(longest, dataset.store->length(sample));
  return longest;
}

TrainableParametersOptions state_options(const TrainConfig& config, bool training) {
  TrainableParametersOptions options;
  options.compute_dtype = config.compute_dtype;
  options.training = training;
  options.zero_stage = static_cast<int>(config.zero_stage);
  options.optimizer_on_host = config.offload_optimizer == OptimizerOffload::cpu;
  if (config.reduce_gradients == GradientReductionChoice::step) options.reduction = GradientReduction::once;
  return options;
}

}  // namespace

ModelState::ModelState(const TrainConfig& config, RankSession& rank, bool training, bool load_weights,
                       const std::function<void()>& between)
    : config_(load_qwen2_config(config.model_name_or_path)), table_(config_) {
  parameters_ = make_trainable_parameters(table_, state_options(config, training), rank.device(), rank.world());
  if (load_weights) this->load_weights(config, between);
}

void ModelState::load_weights(const TrainConfig& config, const std::function<void()>& between) {
  parameters_->set_values([&](const BlockOnHost& blocks) {
    const BlockOnHost block = [&](int index) {
      if (between) between();
      return blocks(index);
    };
    if (config.init == Initialization::random) {
      initialize_parameters(static_cast<std::uint64_t>(config.seed), config_.initializer_range, table_, block);
    } else {
      load_parameters(config.model_name_or_path, table_, block);
    }
  });
}

// "auto": fresh weights have no dtype of their own, loaded ones keep each tensor's.
std::optional<DType> ModelState::export_dtype(const TrainConfig& config) const {
  const bool is_fresh = config.init == Initialization::random;
  return !config.save_dtype && is_fresh ? std::optional(config_.stored_dtype) : config.save_dtype;
}

void ModelState::export_model(const TrainConfig& config, const EndOfTurn& end_of_turn, ControlChannel& control,
                              const std::function<void(const WriteFolder&)>& use) {
  // Not run_together(): gathering is collective, and ends on all ranks when rank 0 fails.
  WorkOutcome outcome;
  parameters_->get_values([&](const BlockOnHost& block) {
    const auto write = [&](const std::filesystem::path& folder) {
      save_model_folder(folder, config.model_name_or_path, table_, block, export_dtype(config), end_of_turn,
                        tokenizer_folder(config));
    };
    outcome = outcome_of([&] { use(write); });
  });
  control.agree_or_throw(outcome.problem, outcome.exit_code);
}

ModelWeights ModelState::exported_weights(const TrainConfig& config) const {
  return plan_model_weights(table_, config.model_name_or_path, export_dtype(config));
}

std::int64_t tokens_that_fit(const TrainConfig& config, const Qwen2Config& model, RankSession& rank) {
  const MemoryModel memory(model.shape(), memory_options(config, model, rank.topology()));
  // Ranks of a node share the host's memory.
  const bool shared = rank.device().kind() == DeviceKind::cpu;
  const std::int64_t ranks = shared ? std::min(rank.grid().world_size(), rank.topology().ranks_per_node) : 1;
  return memory.most_tokens_beside_state(rank.device().free_bytes() / ranks);
}

std::int64_t resolve_bucket_tokens(const TrainConfig& config, const Datasets& data, RankSession& rank,
                                   std::int64_t global_batch_size, std::int64_t tokens_in_memory) {
  const std::int64_t longest = largest_zigzag_shard(std::max(longest_sample(data.train), longest_sample(data.eval)),
                                                    rank.grid().context_parallel);
  // A GPU's memory is there to be filled; a CPU's is the machine's, and larger micro-batches are no faster there.
  const bool fills_memory = rank.device().kind() == DeviceKind::cuda;
  const std::int64_t automatic =
      std::max(longest, fills_memory ? tokens_in_memory : std::min(least_automatic_bucket, tokens_in_memory));
  const std::int64_t bucket = config.bucket_tokens.value_or(automatic);
  const std::int64_t fullest =
      std::max(fullest_batch(data.train, global_batch_size), fullest_batch(data.eval, data.eval.size()));
  return std::min(bucket, fullest);
}

TransformerOptions transformer_options(const TrainConfig& config, std::int64_t max_tokens, bool training) {
  TransformerOptions options;
  options.compute_dtype = config.compute_dtype;
  options.max_tokens = max_tokens;
  options.recompute = recompute_of(config);
  options.loss_chunk_tokens = config.loss_chunk_tokens;
  options.training = training;
  return options;
}

std::unique_ptr<MicroBatchAttention> make_attention(const Qwen2Config& model, const TransformerOptions& options,
                                                    RankSession& rank) {
  return make_micro_batch_attention(
      {attention_shape(model), options.compute_dtype, options.max_tokens, options.training}, rank.device(),
      rank.context());
}

EndOfTurn find_end_of_turn(const Dataset& dataset, const std::filesystem::path& tokenizer_folder) {
  if (!Tokenizer::is_in(tokenizer_folder)) return {};
  const std::optional<std::int32_t> token = Tokenizer::load(tokenizer_folder).find_token(end_of_turn_token);
  if (!token) return {};
  for (const std::int64_t sample : dataset.samples) {
    const auto labels = dataset.store->labels(sample);
    if (std::find(labels.begin(), labels.end(), *token) != labels.end()) {
      return {*token, std::string(end_of_turn_token)};
    }
  }
  return {};
}

}  // namespace skrull
