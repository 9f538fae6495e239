#include "skrull/schedule/memory_model.h"

#include <algorithm>

#include "skrull/core/error.h"

namespace skrull {
namespace {

constexpr std::int64_t fp32_bytes = 4;
constexpr std::int64_t index_bytes = 4;  // int32

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

/// Elements of the largest block: what ZeRO holds whole while it is computed or reduced.
std::int64_t largest_block(const ModelShape& model) {
  return std::max(model.vocab_size * model.hidden_size, layer_parameters(model));
}

FixedBytes fixed_bytes(const ModelShape& model, const MemoryOptions& options) {
  require(options.zero_stage >= 0 && options.zero_stage <= 3 && options.world_size >= 1,
          "memory model: ZeRO stage {} on {} ranks", options.zero_stage, options.world_size);
  constexpr std::int64_t blocks_at_once = 2;  // one computes, the next one arrives
  const std::int64_t elements = parameter_count(model, options.tied_head);
  const std::int64_t compute_bytes = size_of(options.compute_dtype);
  const auto shared_from = [&](int stage, std::int64_t bytes) {
    return options.zero_stage >= stage ? (bytes + options.world_size - 1) / options.world_size : bytes;
  };
  FixedBytes fixed;
  fixed.parameters = shared_from(1, elements * fp32_bytes);
  // Computed with: the master weights themselves where these are whole and fp32.
  const bool master_serves = options.compute_dtype == DType::float32 && options.zero_stage == 0;
  if (!master_serves) fixed.parameters += shared_from(3, elements * compute_bytes);
  if (options.zero_stage == 3) fixed.parameters += blocks_at_once * largest_block(model) * compute_bytes;
  fixed.gradients = shared_from(2, elements * fp32_bytes);
  if (options.zero_stage >= 2) fixed.gradients += blocks_at_once * largest_block(model) * fp32_bytes;
  fixed.optimizer_state = shared_from(1, 2 * elements * fp32_bytes);
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
  switch (options.recompute) {
    case Recompute::none:
      layers = model.num_layers * (input + rest + not_kept);
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
  const std::int64_t scratch = (2 * h + f) * c;
  const std::int64_t loss_rows = 2 * index_bytes + 2 * fp32_bytes;
  return layers + positions + output + scratch + loss_rows;
}

std::int64_t backward_bytes(const ModelShape& model, const MemoryOptions& options) {
  const std::int64_t c = size_of(options.compute_dtype);
  const std::int64_t cast = options.compute_dtype == DType::float32 ? 0 : qkv_size(model) * c;
  const std::int64_t delta = model.num_attention_heads * fp32_bytes;
  return (model.hidden_size + query_size(model) + model.intermediate_size) * c + qkv_size(model) * fp32_bytes + cast +
         delta;
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
      per_token_{activation_bytes(model, options), backward_bytes(model, options), ring_bytes(model, options)} {
  fixed_.loss_head = loss_chunk_tokens_ * loss_row_bytes_;
}

std::int64_t MemoryModel::bytes(std::int64_t tokens) const {
  const std::int64_t missing_rows = std::max<std::int64_t>(0, loss_chunk_tokens_ - tokens);
  return fixed_.total() - missing_rows * loss_row_bytes_ + tokens * per_token_.total();
}

std::int64_t MemoryModel::most_tokens(std::int64_t memory_bytes) const {
  const std::int64_t usable = memory_bytes - memory_bytes / 20;
  if (usable >= bytes(loss_chunk_tokens_)) return (usable - fixed_.total()) / per_token_.total();
  return (usable - bytes(0)) / (per_token_.total() + loss_row_bytes_);
}

}  // namespace skrull
