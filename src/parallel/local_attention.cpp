#include "skrull/parallel/local_attention.h"

#include "skrull/core/error.h"
#include "skrull/core/narrow.h"
#include "skrull/parallel/ring_schedule.h"

namespace skrull {

std::int64_t LocalAttention::planned_bytes(const AttentionShape& shape, std::int64_t max_tokens, bool training) {
  return training ? checked_multiply(checked_multiply(max_tokens, shape.num_heads), size_of(DType::float32)) : 0;
}

LocalAttention::LocalAttention(AttentionShape shape, std::int64_t max_tokens, bool training, Device& device)
    : shape_(shape),
      max_tokens_(max_tokens),
      device_(device),
      delta_(device.allocate(planned_bytes(shape, max_tokens, training), "activations")) {}

void LocalAttention::begin(const MicroBatch& batch) {
  require(batch.tokens() <= max_tokens_, "a micro-batch of {} tokens, memory was planned for {}", batch.tokens(),
          max_tokens_);
  require(batch.rings.empty(), "a micro-batch with {} rings for attention of whole sequences", batch.rings.size());
  segments_ = local_segments(batch);
  tokens_ = 0;
  for (const AttentionSegment& segment : segments_) tokens_ += segment.q_len;
  require(tokens_ == batch.tokens(), "the sequences hold {} tokens, the micro-batch {}", tokens_, batch.tokens());
}

void LocalAttention::check_rows(ConstTensorView q) const {
  require(q.rows() == tokens_, "attention over {} rows, the micro-batch has {}", q.rows(), tokens_);
}

Timeline::Scope LocalAttention::note(const char* name, std::int64_t layer) {
  return device_.timeline().scope(SpanKind::compute, device_.compute_stream(), {name, layer, -1, SpanSequences::local});
}

void LocalAttention::forward(std::int64_t layer, ConstTensorView q, ConstTensorView k, ConstTensorView v,
                             TensorView out, TensorView lse) {
  check_rows(q);
  if (tokens_ == 0) return;
  const auto span = note("local attention", layer);
  device_.ops().attention_forward(
      device_.compute_stream(),
      {.shape = shape_, .segments = segments_, .q = q, .k = k, .v = v, .out = out, .lse = lse});
}

void LocalAttention::backward(std::int64_t layer, ConstTensorView q, ConstTensorView k, ConstTensorView v,
                              ConstTensorView out, ConstTensorView lse, ConstTensorView dout, TensorView dq,
                              TensorView dk, TensorView dv) {
  check_rows(q);
  if (tokens_ == 0) return;
  require(delta_.data() != nullptr, "attention was set up for evaluation: there is no memory for its backward");
  const auto span = note("local attention backward", layer);
  const TensorView delta = delta_.view(DType::float32, tokens_, shape_.num_heads);
  device_.ops().attention_delta(device_.compute_stream(), shape_.head_dim, out, dout, delta);
  device_.ops().attention_backward(device_.compute_stream(), {.shape = shape_,
                                                              .segments = segments_,
                                                              .q = q,
                                                              .k = k,
                                                              .v = v,
                                                              .out = out,
                                                              .dout = dout,
                                                              .lse = lse,
                                                              .delta = delta,
                                                              .dq = dq,
                                                              .dk = dk,
                                                              .dv = dv});
}

}  // namespace skrull
