#include "skrull/model/kv_cache.h"

#include <array>
#include <cmath>

#include "skrull/core/error.h"
#include "skrull/device/ops.h"

namespace skrull {

AttentionShape attention_shape(const Qwen2Config& config) {
  return {.num_heads = config.num_heads,
          .num_kv_heads = config.num_kv_heads,
          .head_dim = config.head_dim,
          .scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(config.head_dim)))};
}

KvCache::KvCache(const Qwen2Config& config, DType compute_dtype, std::int64_t capacity, Device& device)
    : config_(config), dtype_(compute_dtype), capacity_(capacity), device_(&device) {
  for (std::int64_t layer = 0; layer < config.num_layers; ++layer) {
    const auto allocate = [&] { return device.allocate(dtype_, capacity_, config_.key_value_size(), "KV cache"); };
    layers_.push_back({allocate(), allocate()});
  }
}

void KvCache::forward(std::int64_t layer, ConstTensorView q, ConstTensorView k, ConstTensorView v, TensorView out,
                      TensorView lse) {
  const std::int64_t tokens = q.rows();
  require(filled_ + tokens <= capacity_, "a KV cache of {} tokens holds {}, {} more do not fit", capacity_, filled_,
          tokens);
  Ops& ops = device_->ops();
  Stream& stream = device_->compute_stream();
  const Layer& cache = layers_.at(static_cast<std::size_t>(layer));
  const TensorView keys = cache.keys.view(dtype_, filled_ + tokens, config_.key_value_size());
  const TensorView values = cache.values.view(dtype_, filled_ + tokens, config_.key_value_size());
  ops.cast(stream, k, keys.slice_rows(filled_, tokens));
  ops.cast(stream, v, values.slice_rows(filled_, tokens));
  const std::array<AttentionSegment, 1> segments = {
      {{.q_begin = 0, .q_len = tokens, .k_begin = 0, .k_len = filled_ + tokens, .causal = true}}};
  ops.attention_forward(stream, {.shape = attention_shape(config_),
                                 .segments = segments,
                                 .q = q,
                                 .k = keys,
                                 .v = values,
                                 .out = out,
                                 .lse = lse});
  if (layer == config_.num_layers - 1) filled_ += tokens;
}

void KvCache::backward(std::int64_t /*layer*/, ConstTensorView /*q*/, ConstTensorView /*k*/, ConstTensorView /*v*/,
                       ConstTensorView /*out*/, ConstTensorView /*lse*/, ConstTensorView /*dout*/, TensorView /*dq*/,
                       TensorView /*dk*/, TensorView /*dv*/) {
  throw_run_failure("attention over a KV cache has no backward");
}

std::int64_t KvCache::planned_bytes(const Qwen2Config& config, DType compute_dtype, std::int64_t capacity) {
  return 2 * config.num_layers * capacity * config.key_value_size() * size_of(compute_dtype);
}

}  // namespace skrull
