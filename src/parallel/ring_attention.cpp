#include "skrull/parallel/ring_attention.h"

#include "skrull/core/error.h"
#include "skrull/core/narrow.h"
#include "skrull/schedule/memory_model.h"

namespace skrull {
namespace {

std::int64_t key_value_cols(const AttentionShape& shape) {
  return shape.num_kv_heads * shape.head_dim;
}

/// Keys and values of a buffer that holds both in each row, so that they travel in one message.
template <class View>
struct KeyValue {
  KeyValue(const View& both)  // NOLINT(google-explicit-constructor)
      : k(both.slice_cols(0, both.cols() / 2)), v(both.slice_cols(both.cols() / 2, both.cols() / 2)) {}
  View k, v;
};

}  // namespace

template <class Take>
RingAttention::Buffers RingAttention::lay_out(const MicroBatchAttentionOptions& options, int ranks, const Take& take) {
  const AttentionShape& shape = options.shape;
  const std::int64_t tokens = options.max_tokens;
  // A rank holds at most `tokens`, and what reaches this one is held by the other ranks.
  const std::int64_t of_others = checked_multiply(ranks - 1, tokens);
  const std::int64_t key_value = 2 * key_value_cols(shape);
  const std::int64_t query = shape.num_heads * shape.head_dim;
  const auto ring = [&](DType dtype, std::int64_t rows, std::int64_t cols) {
    return take("ring buffers", dtype, rows, cols);
  };
  Buffers buffers;
  buffers.own = ring(options.compute_dtype, tokens, key_value);
  buffers.arrivals = ring(options.compute_dtype, of_others, key_value);
  if (options.compute_dtype != DType::float32) buffers.sum_out = ring(DType::float32, tokens, query);
  buffers.partial_out = ring(DType::float32, tokens, query);
  buffers.partial_lse = ring(DType::float32, tokens, shape.num_heads);
  if (!options.training) return buffers;
  buffers.delta = take("activations", DType::float32, tokens, shape.num_heads);
  const std::int64_t on_their_way = checked_multiply(ring_gradient_hops(ranks), tokens);
  buffers.outbox = ring(DType::float32, on_their_way, key_value);
  buffers.inbox = ring(DType::float32, on_their_way, key_value);
  return buffers;
}

std::int64_t RingAttention::planned_bytes(const MicroBatchAttentionOptions& options, int ranks) {
  std::int64_t bytes = 0;
  lay_out(options, ranks, [&](const char* /*category*/, DType dtype, std::int64_t rows, std::int64_t cols) {
    bytes += checked_multiply(checked_multiply(rows, cols), size_of(dtype));
    return TensorView();
  });
  return bytes;
}

RingAttention::RingAttention(const MicroBatchAttentionOptions& options, Device& device, Communicator& context)
    : options_(options), device_(device), context_(context) {
  buffers_ =
      lay_out(options_, context_.size(), [&](const char* category, DType dtype, std::int64_t rows, std::int64_t cols) {
        memory_.push_back(device_.allocate(dtype, rows, cols, category));
        return memory_.back().view(dtype, rows, cols);
      });
}

void RingAttention::begin(const MicroBatch& batch) {
  require(batch.tokens() <= options_.max_tokens, "a micro-batch of {} tokens, memory was planned for {}",
          batch.tokens(), options_.max_tokens);
  schedule_ = schedule_rings(batch);
  key_value_exchanges_.clear();
  for (const RingRound& round : schedule_.rounds) {
    const bool first = key_value_exchanges_.empty();
    key_value_exchanges_.push_back(transfers(round.key_value_sends, first ? buffers_.own : buffers_.arrivals,
                                             round.key_value_receives, buffers_.arrivals));
  }
  if (!options_.training) return;
  const double row_cost =
      static_cast<double>(size_of(DType::float32)) / static_cast<double>(size_of(options_.compute_dtype));
  backward_ = order_backward(schedule_, {buffers_.outbox.rows(), row_cost});
  gradient_exchanges_.clear();
  for (const RingBackwardStep& step : backward_.steps) {
    gradient_exchanges_.push_back(transfers({{step.source, step.outbox_begin, step.arrived.count}}, buffers_.outbox,
                                            {{step.reader, step.inbox_begin, step.own.count}}, buffers_.inbox));
  }
}

void RingAttention::check_rows(ConstTensorView q) const {
  const std::int64_t rows = schedule_.local_rows + schedule_.ring_rows;
  require(q.rows() == rows, "attention over {} rows, the micro-batch has {}", q.rows(), rows);
}

/// Hop 0: the span is of none.
Timeline::Scope RingAttention::note(SpanKind kind, const char* name, std::size_t hop, SpanSequences sequences) {
  Stream& stream = kind == SpanKind::communication ? device_.communication_stream() : device_.compute_stream();
  const std::int64_t number = hop == 0 ? -1 : static_cast<std::int64_t>(hop);
  return device_.timeline().scope(kind, stream, {name, layer_, number, sequences});
}

std::vector<Transfer> RingAttention::transfers(const std::vector<RowTransfer>& sends, const TensorView& from,
                                               const std::vector<RowTransfer>& receives, const TensorView& to) const {
  std::vector<Transfer> result;
  const auto add = [&](Transfer::Kind kind, const std::vector<RowTransfer>& list, const TensorView& buffer) {
    for (const RowTransfer& transfer : list) {
      if (transfer.rows == 0) continue;
      const TensorView rows = buffer.slice_rows(transfer.begin, transfer.rows);
      result.push_back({kind, transfer.peer, rows.data(), rows.elements() * size_of(rows.dtype())});
    }
  };
  add(Transfer::Kind::send, sends, from);
  add(Transfer::Kind::receive, receives, to);
  return result;
}

/// Queues all hops; event t is reached when those of round t have arrived, and what this rank sent in it has left.
std::vector<Event> RingAttention::send_keys_and_values(ConstTensorView k, ConstTensorView v) {
  std::vector<Event> arrivals;
  if (schedule_.rounds.empty()) return arrivals;
  Stream& compute = device_.compute_stream();
  Stream& communication = device_.communication_stream();
  const KeyValue own(buffers_.own.slice_rows(0, schedule_.ring_rows));
  device_.ops().cast(compute, k, own.k);
  device_.ops().cast(compute, v, own.v);
  communication.wait(compute.record());
  for (const std::vector<Transfer>& exchange : key_value_exchanges_) {
    const auto span = note(SpanKind::communication, "keys and values", arrivals.size() + 1, SpanSequences::of_rings);
    context_.exchange(communication, exchange);
    arrivals.push_back(communication.record());
  }
  return arrivals;
}

void RingAttention::forward(std::int64_t layer, ConstTensorView q, ConstTensorView k, ConstTensorView v, TensorView out,
                            TensorView lse) {
  layer_ = layer;
  check_rows(q);
  Ops& ops = device_.ops();
  Stream& compute = device_.compute_stream();
  const auto of_rings = [&](const auto& packed) {
    return packed.slice_rows(schedule_.local_rows, schedule_.ring_rows);
  };
  const std::vector<Event> arrivals = send_keys_and_values(of_rings(k), of_rings(v));
  if (!schedule_.local.empty()) {
    const auto span = note(SpanKind::compute, "local attention", 0, SpanSequences::local);
    ops.attention_forward(
        compute,
        {.shape = options_.shape, .segments = schedule_.local, .q = q, .k = k, .v = v, .out = out, .lse = lse});
  }
  const bool in_place = out.dtype() == DType::float32;
  const TensorView sum = in_place ? of_rings(out) : buffers_.sum_out.slice_rows(0, schedule_.ring_rows);
  if (!schedule_.own_shards.empty()) {
    const auto span = note(SpanKind::compute, "own shards", 0, SpanSequences::of_rings);
    ops.attention_forward(compute, {.shape = options_.shape,
                                    .segments = schedule_.own_shards,
                                    .q = of_rings(q),
                                    .k = of_rings(k),
                                    .v = of_rings(v),
                                    .out = sum,
                                    .lse = of_rings(lse)});
  }
  join_hops(arrivals, of_rings(q), sum, of_rings(lse));
  if (!in_place && schedule_.ring_rows > 0) ops.cast(compute, sum, of_rings(out));
}

void RingAttention::join_hops(const std::vector<Event>& arrivals, ConstTensorView q, TensorView sum, TensorView lse) {
  Ops& ops = device_.ops();
  Stream& compute = device_.compute_stream();
  const KeyValue keys(buffers_.arrivals.slice_rows(0, schedule_.arrival_rows));
  const TensorView partial_out = buffers_.partial_out.slice_rows(0, schedule_.ring_rows);
  const TensorView partial_lse = buffers_.partial_lse.slice_rows(0, schedule_.ring_rows);
  for (std::size_t i = 0; i < arrivals.size(); ++i) {
    const RingRound& round = schedule_.rounds[i];
    {
      const auto span = note(SpanKind::wait, "wait for keys and values", i + 1, SpanSequences::of_rings);
      compute.wait(arrivals[i]);
    }
    if (round.segments.empty()) continue;
    const auto span = note(SpanKind::compute, "ring attention", i + 1, SpanSequences::of_rings);
    ops.attention_forward(compute, {.shape = options_.shape,
                                    .segments = round.segments,
                                    .q = q,
                                    .k = keys.k,
                                    .v = keys.v,
                                    .out = partial_out,
                                    .lse = partial_lse});
    for (const RowRange& rows : round.queries) {
      const auto part = [&](const TensorView& view) { return view.slice_rows(rows.begin, rows.count); };
      ops.attention_merge(compute, options_.shape.head_dim, part(partial_out), part(partial_lse), part(sum), part(lse));
    }
  }
}

void RingAttention::backward(std::int64_t layer, ConstTensorView q, ConstTensorView k, ConstTensorView v,
                             ConstTensorView out, ConstTensorView lse, ConstTensorView dout, TensorView dq,
                             TensorView dk, TensorView dv) {
  layer_ = layer;
  check_rows(q);
  require(options_.training, "attention was set up for evaluation: there is no memory for its backward");
  Stream& compute = device_.compute_stream();
  Stream& communication = device_.communication_stream();
  const auto of_rings = [&](const auto& packed) {
    return packed.slice_rows(schedule_.local_rows, schedule_.ring_rows);
  };
  const std::vector<Event> arrivals = send_keys_and_values(of_rings(k), of_rings(v));
  const TensorView delta = buffers_.delta.slice_rows(0, q.rows());
  if (q.rows() > 0) device_.ops().attention_delta(compute, options_.shape.head_dim, out, dout, delta);
  const AttentionBackward packed = {.shape = options_.shape,
                                    .segments = {},
                                    .q = q,
                                    .k = k,
                                    .v = v,
                                    .out = out,
                                    .dout = dout,
                                    .lse = lse,
                                    .delta = delta,
                                    .dq = dq,
                                    .dk = dk,
                                    .dv = dv};
  AttentionBackward hop = packed;
  hop.q = of_rings(q);
  hop.out = of_rings(out);
  hop.dout = of_rings(dout);
  hop.lse = of_rings(lse);
  hop.delta = of_rings(delta);
  hop.dq = of_rings(dq);
  Returns returns;
  for (std::size_t i = 0; i < backward_.steps.size(); ++i) {
    const RingBackwardStep& step = backward_.steps[i];
    attend_in_slice(packed, backward_.local[i]);
    add_returns(returns, step.steps_over, of_rings(dk), of_rings(dv));
    {
      const auto span = note(SpanKind::wait, "wait for keys and values", step.round + 1, SpanSequences::of_rings);
      compute.wait(arrivals[step.round]);
    }
    attend_to_hop(hop, step);
    communication.wait(compute.record());
    const auto span = note(SpanKind::communication, "gradients", step.round + 1, SpanSequences::of_rings);
    context_.exchange(communication, gradient_exchanges_[i]);
    returns.events.push_back(communication.record());
  }
  attend_in_slice(packed, backward_.local.back());
  add_returns(returns, returns.events.size(), of_rings(dk), of_rings(dv));
}

/// Local sequences and own shards, both in packed rows.
void RingAttention::attend_in_slice(const AttentionBackward& packed, const std::vector<AttentionSegment>& segments) {
  if (segments.empty()) return;
  const auto span = note(SpanKind::compute, "local attention backward", 0, SpanSequences::local);
  attend_backward(packed, segments);
}

/// Writes the gradients of the keys and values of a hop to the outbox. All of `of_rings` but keys and values is set.
void RingAttention::attend_to_hop(AttentionBackward of_rings, const RingBackwardStep& step) {
  const auto span = note(SpanKind::compute, "ring attention backward", step.round + 1, SpanSequences::of_rings);
  const TensorView outbox = buffers_.outbox.slice_rows(step.outbox_begin, step.arrived.count);
  device_.ops().fill_zero(device_.compute_stream(), outbox);
  const KeyValue keys(buffers_.arrivals.slice_rows(step.arrived.begin, step.arrived.count));
  const KeyValue gradients(outbox);
  of_rings.k = keys.k;
  of_rings.v = keys.v;
  of_rings.dk = gradients.k;
  of_rings.dv = gradients.v;
  attend_backward(of_rings, step.segments);
}

void RingAttention::attend_backward(AttentionBackward attention, const std::vector<AttentionSegment>& segments) {
  if (segments.empty()) return;
  attention.segments = segments;
  device_.ops().attention_backward(device_.compute_stream(), attention);
}

/// Those of the first `steps` steps, in their order whenever they arrive. After all, the buffers are free for the next
/// layer.
void RingAttention::add_returns(Returns& returns, std::size_t steps, TensorView dk, TensorView dv) {
  for (; returns.added < steps; ++returns.added) {
    const RingBackwardStep& step = backward_.steps[returns.added];
    {
      const auto span = note(SpanKind::wait, "wait for gradients", step.round + 1, SpanSequences::of_rings);
      device_.compute_stream().wait(returns.events[returns.added]);
    }
    if (step.own.count == 0) continue;
    const KeyValue gradients(buffers_.inbox.slice_rows(step.inbox_begin, step.own.count));
    device_.ops().add(device_.compute_stream(), gradients.k, dk.slice_rows(step.own.begin, step.own.count));
    device_.ops().add(device_.compute_stream(), gradients.v, dv.slice_rows(step.own.begin, step.own.count));
  }
}

}  // namespace skrull
