#include "skrull/schedule/memory_model.h"

#include <algorithm>

#include "skrull/core/error.h"

namespace skrull {
namespace {

constexpr std::int64_t fp32_bytes = 4;
constexpr std::int64_t fp64_bytes = 8;
constexpr std::int64_t index_bytes = 4;  // int32
/// Row, label, weight and loss of a token.
constexpr std::int64_t loss_token_bytes = 2 * index_bytes + 2 * fp32_bytes;

std::int64_t query_size(const ModelShape& model) {
  return model.num_attention_heads * model.head_dim;
}

std::int64_t qkv_size(const ModelShape& model) {
  return query_size(model) + model.key_value_elements_per_token();
}

std::int64_t layer_parameters(const ModelShape& model) {
  const std::int64_t h = model.hidden_size;
  const std::int64_t projections = h * qkv_size(model) + qkv_size(model) + query_size(model) * h;
  return projections + 3 * h * model.intermediate_size + 2 * h;
}

/// Elements of every block, as the trainer's parameter table divides them.
std::vector<std::int64_t> block_elements(const ModelShape& model, bool tied_head) {
  const std::int64_t table = model.vocab_size * model.hidden_size;
  std::vector<std::int64_t> blocks = {table};
  blocks.insert(blocks.end(), static_cast<std::size_t>(model.num_layers), layer_parameters(model));
  blocks.push_back(model.hidden_size);
  if (!tied_head) blocks.push_back(table);
  return blocks;
}

/// Elements of the blocks that are whole at a time where the rest is divided: a table, two layers, the final norm.
std::int64_t whole_block_elements(const ModelShape& model) {
  constexpr std::int64_t layers_at_once = 2;  // one computes, the other one is on its way
  return model.vocab_size * model.hidden_size + layers_at_once * layer_parameters(model) + model.hidden_size;
}

int stage_in_effect(const MemoryOptions& options) {
  return options.world_size == 1 ? 0 : options.zero_stage;
}

/// Elements of what is divided among the ranks from `first_stage` on.
std::int64_t elements_of_rank(const ModelShape& model, const MemoryOptions& options, int first_stage) {
  if (stage_in_effect(options) < first_stage) return parameter_count(model, options.tied_head);
  std::int64_t owned = 0;
  for (const std::int64_t elements : block_elements(model, options.tied_head)) {
    owned += (elements + options.world_size - 1) / options.world_size;
  }
  return owned;
}

/// Master weights, two moments, gradients, and a copy in the compute dtype.
std::int64_t bytes_on_host(const ModelShape& model, const MemoryOptions& options) {
  if (!options.optimizer_on_host) return 0;
  const std::int64_t copy = options.compute_dtype == DType::float32 ? 0 : size_of(options.compute_dtype);
  return elements_of_rank(model, options, 1) * (4 * fp32_bytes + copy);
}

FixedBytes fixed_bytes(const ModelShape& model, const MemoryOptions& options) {
  require(options.zero_stage >= 0 && options.zero_stage <= 3 && options.world_size >= 1,
          "memory model: ZeRO stage {} on {} ranks", options.zero_stage, options.world_size);
  const int stage = stage_in_effect(options);
  const std::int64_t compute_bytes = size_of(options.compute_dtype);
  const auto divided_from = [&](int first_stage) { return elements_of_rank(model, options, first_stage); };
  FixedBytes fixed;
  fixed.parameters = divided_from(3) * compute_bytes;
  fixed.gradients = divided_from(2) * fp32_bytes + fp64_bytes;  // and the sum of their squares
  if (!options.optimizer_on_host) {
    // In fp32 the master weights lie in what is computed with.
    if (options.compute_dtype != DType::float32) fixed.parameters += divided_from(1) * fp32_bytes;
    fixed.optimizer_state = 2 * divided_from(1) * fp32_bytes;
  }
  if (stage >= 2) fixed.gradient_buffers = whole_block_elements(model) * fp32_bytes;
  if (stage == 3) fixed.gathered_parameters = whole_block_elements(model) * compute_bytes;
  fixed.activations = model.head_dim / 2 * fp32_bytes;
  return fixed;
}

/// Of one row of the loss head's chunk: hidden state, its gradient, logits and theirs.
std::int64_t loss_row_bytes(const ModelShape& model, DType compute_dtype) {
  const std::int64_t c = size_of(compute_dtype);
  // In fp32 the gradient of the logits overwrites them.
  const std::int64_t logits = fp32_bytes + (compute_dtype == DType::float32 ? 0 : c);
  return 2 * model.hidden_size * c + model.vocab_size * logits;
}

std::int64_t activation_bytes(const ModelShape& model, const MemoryOptions& options) {
  const std::int64_t h = model.hidden_size;
  const std::int64_t f = model.intermediate_size;
  const std::int64_t c = size_of(options.compute_dtype);
  const std::int64_t input = h * c;
  // Residual stream after attention, two inverse norms, q k v, attention's output and log-sum-exp, gate and up.
  const std::int64_t rest =
      (h + qkv_size(model) + query_size(model) + 2 * f) * c + (2 + model.num_attention_heads) * fp32_bytes;
  const std::int64_t not_kept = (2 * h + f) * c;  // normed inputs and the MLP's inner product
  std::int64_t layers = 0;
  std::int64_t scratch = (2 * h + f) * c;
  switch (options.recompute) {
    case Recompute::none:
      layers = model.num_layers * (input + rest + not_kept);
      scratch = 2 * h * c;
      break;
    case Recompute::selective:
      layers = model.num_layers * (input + rest);
      break;
    case Recompute::full:
      layers = model.num_layers * input + rest;
      break;
  }
  const std::int64_t positions = 2 * index_bytes + model.head_dim * fp32_bytes;  // ids, positions, RoPE's table
  const std::int64_t output = h * c + fp32_bytes;
  const std::int64_t delta = model.num_attention_heads * fp32_bytes;  // of attention's backward
  return layers + positions + output + scratch + delta;
}

std::int64_t backward_bytes(const ModelShape& model, const MemoryOptions& options) {
  const std::int64_t c = size_of(options.compute_dtype);
  const std::int64_t cast = options.compute_dtype == DType::float32 ? 0 : qkv_size(model) * c;
  return (model.hidden_size + query_size(model) + model.intermediate_size) * c + qkv_size(model) * fp32_bytes + cast;
}

std::int64_t ring_bytes(const ModelShape& model, const MemoryOptions& options) {
  if (options.largest_ring < 2) return 0;
  const std::int64_t key_value = model.key_value_elements_per_token();
  const std::int64_t others = options.largest_ring - 1;
  const std::int64_t hops =
      (1 + others) * key_value * size_of(options.compute_dtype);  // own shards and a buffer per hop
  // Of what arrived, and from other ranks.
  const std::int64_t gradients = 2 * ring_gradient_hops(options.largest_ring) * key_value * fp32_bytes;
  const std::int64_t sum = options.compute_dtype == DType::float32 ? 0 : query_size(model) * fp32_bytes;
  const std::int64_t partial = (query_size(model) + model.num_attention_heads) * fp32_bytes;
  return hops + gradients + sum + partial;
}

}  // namespace

int ring_gradient_hops(int ranks) {
  constexpr int most = 3;
  return std::min(most, ranks - 1);
}

std::int64_t parameter_count(const ModelShape& model, bool tied_head) {
  const std::int64_t embedding = model.vocab_size * model.hidden_size;
  return (tied_head ? 1 : 2) * embedding + model.num_layers * layer_parameters(model) + model.hidden_size;
}

std::int64_t default_loss_chunk_tokens(std::int64_t vocab_size) {
  constexpr std::int64_t logits_bytes = std::int64_t{256} << 20;
  constexpr std::int64_t fewest_rows = 64;
  return std::max(fewest_rows, logits_bytes / (vocab_size * fp32_bytes));
}

MemoryModel::MemoryModel(const ModelShape& model, const MemoryOptions& options)
    : loss_chunk_tokens_(options.loss_chunk_tokens > 0 ? options.loss_chunk_tokens
                                                       : default_loss_chunk_tokens(model.vocab_size)),
      loss_row_bytes_(loss_row_bytes(model, options.compute_dtype)),
      fixed_(fixed_bytes(model, options)),
      per_token_{activation_bytes(model, options), backward_bytes(model, options), loss_token_bytes,
                 ring_bytes(model, options)},
      host_bytes_(bytes_on_host(model, options)) {
  fixed_.loss_head = loss_chunk_tokens_ * loss_row_bytes_;
}

std::int64_t MemoryModel::loss_chunk_bytes(std::int64_t tokens) const {
  return std::min(loss_chunk_tokens_, tokens) * loss_row_bytes_;
}

std::int64_t MemoryModel::bytes(std::int64_t tokens) const {
  return fixed_.total() - fixed_.loss_head + loss_chunk_bytes(tokens) + tokens * per_token_.total();
}

std::vector<MemoryCategory> MemoryModel::by_category(std::int64_t tokens) const {
  std::vector<MemoryCategory> categories = {
      {"parameters", fixed_.parameters},
      {"gathered parameters", fixed_.gathered_parameters},
      {"gradients", fixed_.gradients},
      {"gradient buffers", fixed_.gradient_buffers},
      {"optimizer state", fixed_.optimizer_state},
      {"activations", fixed_.activations + tokens * per_token_.activations},
      {"backward buffers", tokens * per_token_.backward},
      {"loss head", loss_chunk_bytes(tokens) + tokens * per_token_.loss_head},
      {"ring buffers", tokens * per_token_.rings},
  };
  std::erase_if(categories, [](const MemoryCategory& category) { return category.bytes == 0; });
  return categories;
}

std::int64_t MemoryModel::most_tokens(std::int64_t memory_bytes) const {
  const std::int64_t usable = memory_bytes - memory_bytes / 25;
  if (usable >= bytes(loss_chunk_tokens_)) return (usable - fixed_.total()) / per_token_.total();
  return (usable - bytes(0)) / (per_token_.total() + loss_row_bytes_);
}

}  // namespace skrull
