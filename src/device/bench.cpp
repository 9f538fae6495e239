#include "skrull/device/bench.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <functional>
#include <limits>

#include "skrull/core/rng.h"
#include "skrull/device/ops.h"

namespace skrull {

namespace {

class OpBench {
 public:
  OpBench(Device& device, const BenchShape& shape, DType dtype, double seconds)
      : device_(device),
        ops_(device.ops()),
        stream_(device.compute_stream()),
        s_(shape),
        dtype_(dtype),
        seconds_(seconds) {}

  std::vector<OpRate> run() {
    copies();
    products();
    layer("down, one token", 1, s_.intermediate, s_.hidden, dtype_);
    norms();
    activations();
    embedding();
    loss();
    optimizer();
    return std::move(rates_);
  }

  std::vector<OpRate> run_products() {
    products();
    return std::move(rates_);
  }

  std::vector<OpRate> run_attention(std::int64_t length) {
    attention(length);
    return std::move(rates_);
  }

 private:
  /// Small random values; a table of them is repeated, as drawing each would take longer than the operation.
  TensorView random(DType dtype, std::int64_t rows, std::int64_t cols) {
    buffers_.push_back(device_.allocate(dtype, rows, cols, "bench"));
    const TensorView view = buffers_.back().view(dtype, rows, cols);
    constexpr std::int64_t table_size = 1 << 16;
    std::vector<float> table(static_cast<std::size_t>(std::min(view.elements(), table_size)));
    Rng rng(1, "bench");
    for (float& value : table) value = static_cast<float>(0.1 * rng.normal());
    const Buffer staging = device_.allocate(DType::float32, 1, table_size, "bench");
    for (std::int64_t begin = 0; begin < view.elements(); begin += table_size) {
      const std::int64_t count = std::min(table_size, view.elements() - begin);
      const TensorView part = staging.view(DType::float32, 1, count);
      device_.copy_to_device(stream_, part, table.data());
      ops_.cast(stream_, part, view.reshape(1, view.elements()).slice_cols(begin, count));
    }
    stream_.synchronize();
    return view;
  }

  TensorView whole_numbers(std::int64_t count, std::int64_t bound) {
    buffers_.push_back(device_.allocate(DType::int32, 1, count, "bench"));
    std::vector<std::int32_t> values(static_cast<std::size_t>(count));
    Rng rng(2, "bench");
    for (std::int32_t& value : values) value = static_cast<std::int32_t>(rng.below(static_cast<std::uint64_t>(bound)));
    const TensorView view = buffers_.back().view(DType::int32, 1, count);
    device_.copy_to_device(stream_, view, values.data());
    stream_.synchronize();
    return view;
  }

  void measure(std::string name, double flops, double bytes, const std::function<void()>& operation) {
    operation();
    stream_.synchronize();
    double best = std::numeric_limits<double>::infinity();
    for (double spent = 0; spent < seconds_;) {
      const auto begin = std::chrono::steady_clock::now();
      operation();
      stream_.synchronize();
      const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
      best = std::min(best, seconds);
      spent += seconds;
    }
    rates_.push_back({std::move(name), best, flops / best * 1e-9, bytes / best * 1e-9});
  }

  double bytes(std::int64_t elements) const { return static_cast<double>(elements * size_of(dtype_)); }

  void copies() {
    const std::int64_t elements = std::int64_t{1} << 26;
    const TensorView source = random(DType::float32, 1, elements);
    const TensorView target = random(DType::float32, 1, elements);
    measure("copy", 0, 8.0 * static_cast<double>(elements), [&] { ops_.cast(stream_, source, target); });
    buffers_.clear();
  }

  /// y = x w^T, dx = dy w, dw += dy^T x, for a layer in -> out; y, dx and dw as the model holds them.
  void layer(const std::string& name, std::int64_t tokens, std::int64_t in, std::int64_t out, DType output_dtype) {
    const TensorView x = random(dtype_, tokens, in);
    const TensorView w = random(dtype_, out, in);
    const TensorView y = random(output_dtype, tokens, out);
    const TensorView dy = output_dtype == dtype_ ? y : random(dtype_, tokens, out);
    const TensorView dw = random(DType::float32, out, in);
    const double flops = 2.0 * static_cast<double>(tokens) * static_cast<double>(in) * static_cast<double>(out);
    Gemm forward;
    forward.a = x;
    forward.b = w;
    forward.c = y;
    forward.transpose_b = true;
    measure(name + " forward", flops, 0, [&] { ops_.gemm(stream_, forward); });
    Gemm input;
    input.a = dy;
    input.b = w;
    input.c = x;
    measure(name + " input gradient", flops, 0, [&] { ops_.gemm(stream_, input); });
    Gemm weight;
    weight.a = dy;
    weight.b = x;
    weight.c = dw;
    weight.transpose_a = true;
    weight.accumulate = true;
    measure(name + " weight gradient", flops, 0, [&] { ops_.gemm(stream_, weight); });
    buffers_.clear();
  }

  void products() {
    layer("qkv", s_.tokens, s_.hidden, (s_.num_heads + 2 * s_.num_kv_heads) * s_.head_dim, dtype_);
    layer("attention output", s_.tokens, s_.num_heads * s_.head_dim, s_.hidden, dtype_);
    layer("gate and up", s_.tokens, s_.hidden, 2 * s_.intermediate, dtype_);
    layer("down", s_.tokens, s_.intermediate, s_.hidden, dtype_);
    layer("head", s_.loss_chunk_tokens, s_.hidden, s_.vocabulary, DType::float32);
  }

  void norms() {
    const TensorView x = random(dtype_, s_.tokens, s_.hidden);
    const TensorView delta = random(dtype_, s_.tokens, s_.hidden);
    const TensorView y = random(dtype_, s_.tokens, s_.hidden);
    const TensorView sum = random(dtype_, s_.tokens, s_.hidden);
    const TensorView weight = random(dtype_, 1, s_.hidden);
    const TensorView dweight = random(DType::float32, 1, s_.hidden);
    const TensorView inverse = random(DType::float32, 1, s_.tokens);
    measure("rms_norm forward with residual", 0, 4 * bytes(x.elements()),
            [&] { ops_.rms_norm_forward(stream_, x, delta, weight, 1e-6F, sum, y, inverse); });
    measure("rms_norm backward", 0, 4 * bytes(x.elements()),
            [&] { ops_.rms_norm_backward(stream_, delta, x, weight, inverse, y, dweight); });
    measure("add", 0, 3 * bytes(x.elements()), [&] { ops_.add(stream_, x, y); });
    buffers_.clear();
  }

  void activations() {
    const std::int64_t heads = s_.num_heads + 2 * s_.num_kv_heads;
    const TensorView qkv = random(dtype_, s_.tokens, heads * s_.head_dim);
    const TensorView table = random(DType::float32, s_.tokens, s_.head_dim);
    const TensorView positions = whole_numbers(s_.tokens, 1 << 17);
    const TensorView frequencies = random(DType::float32, 1, s_.head_dim / 2);
    const TensorView dbias = random(DType::float32, 1, qkv.cols());
    measure("rope table", 0, 4.0 * static_cast<double>(table.elements()),
            [&] { ops_.rope_table(stream_, positions, frequencies, table); });
    measure("rope", 0, 2 * bytes(qkv.elements()) + 4.0 * static_cast<double>(table.elements()),
            [&] { ops_.rope(stream_, qkv, table, s_.head_dim, false); });
    measure("bias gradient", 0, bytes(qkv.elements()), [&] { ops_.bias_backward(stream_, qkv, dbias); });
    const TensorView gate_up = random(dtype_, s_.tokens, 2 * s_.intermediate);
    const TensorView y = random(dtype_, s_.tokens, s_.intermediate);
    const TensorView dgate_up = random(dtype_, s_.tokens, 2 * s_.intermediate);
    measure("swiglu forward", 0, 3 * bytes(y.elements()), [&] { ops_.swiglu_forward(stream_, gate_up, y); });
    measure("swiglu backward", 0, 5 * bytes(y.elements()),
            [&] { ops_.swiglu_backward(stream_, gate_up, y, dgate_up); });
    buffers_.clear();
  }

  void attention(std::int64_t length) {
    const TensorView qkv = random(dtype_, length, (s_.num_heads + 2 * s_.num_kv_heads) * s_.head_dim);
    const std::int64_t query = s_.num_heads * s_.head_dim;
    const std::int64_t key = s_.num_kv_heads * s_.head_dim;
    const TensorView q = qkv.slice_cols(0, query);
    const TensorView k = qkv.slice_cols(query, key);
    const TensorView v = qkv.slice_cols(query + key, key);
    const TensorView out = random(dtype_, length, query);
    const TensorView dout = random(dtype_, length, query);
    const TensorView lse = random(DType::float32, length, s_.num_heads);
    const TensorView delta = random(DType::float32, length, s_.num_heads);
    const TensorView dqkv = random(DType::float32, length, qkv.cols());
    const AttentionShape shape{s_.num_heads, s_.num_kv_heads, s_.head_dim,
                               static_cast<float>(1.0 / std::sqrt(static_cast<double>(s_.head_dim)))};
    const std::array segments{AttentionSegment{0, length, 0, length, true}};
    const double flops =
        2.0 * static_cast<double>(query) * static_cast<double>(length) * static_cast<double>(length + 1);
    measure("attention forward", flops, 0, [&] {
      ops_.attention_forward(stream_, {shape, segments, q, k, v, out, lse});
    });
    ops_.attention_delta(stream_, s_.head_dim, out, dout, delta);
    measure("attention backward", 2.5 * flops, 0, [&] {
      ops_.attention_backward(stream_, {shape, segments, q, k, v, out, dout, lse, delta, dqkv.slice_cols(0, query),
                                        dqkv.slice_cols(query, key), dqkv.slice_cols(query + key, key)});
    });
    buffers_.clear();
  }

  void embedding() {
    const TensorView ids = whole_numbers(s_.tokens, s_.vocabulary);
    const TensorView table = random(dtype_, s_.vocabulary, s_.hidden);
    const TensorView gradient = random(DType::float32, s_.vocabulary, s_.hidden);
    const TensorView x = random(dtype_, s_.tokens, s_.hidden);
    measure("embedding forward", 0, 2 * bytes(x.elements()), [&] { ops_.embedding_forward(stream_, ids, table, x); });
    measure("embedding backward", 0, bytes(x.elements()) + 8.0 * static_cast<double>(x.elements()),
            [&] { ops_.embedding_backward(stream_, ids, x, gradient); });
    buffers_.clear();
  }

  void loss() {
    CrossEntropy c;
    c.logits = random(DType::float32, s_.loss_chunk_tokens, s_.vocabulary);
    c.labels = whole_numbers(s_.loss_chunk_tokens, s_.vocabulary);
    c.weights = random(DType::float32, 1, s_.loss_chunk_tokens);
    c.losses = random(DType::float32, 1, s_.loss_chunk_tokens);
    const double logits_bytes = 4.0 * static_cast<double>(c.logits.elements());
    measure("cross-entropy, loss alone", 0, logits_bytes, [&] { ops_.cross_entropy(stream_, c); });
    c.gradient = dtype_ == DType::float32 ? c.logits : random(dtype_, s_.loss_chunk_tokens, s_.vocabulary);
    measure("cross-entropy with gradient", 0, 2 * logits_bytes + bytes(c.logits.elements()),
            [&] { ops_.cross_entropy(stream_, c); });
    buffers_.clear();
  }

  void optimizer() {
    const std::int64_t count = std::int64_t{1} << 24;
    AdamW a;
    a.parameter = random(DType::float32, 1, count);
    const TensorView gradient = random(DType::float32, 1, count);
    a.gradient = gradient;
    a.first_moment = random(DType::float32, 1, count);
    a.second_moment = random(DType::float32, 1, count);
    ops_.fill_zero(stream_, a.second_moment);
    a.learning_rate = 1e-5;
    a.weight_decay = 0.01;
    if (dtype_ != DType::float32) a.compute_copy = random(dtype_, 1, count);
    const double copy_bytes = a.compute_copy ? bytes(count) : 0.0;
    measure("adamw", 0, 28.0 * static_cast<double>(count) + copy_bytes, [&] { ops_.adamw(stream_, a); });
    buffers_.push_back(device_.allocate(DType::float64, 1, 1, "bench"));
    const TensorView sum = buffers_.back().view(DType::float64, 1, 1);
    measure("sum of squares", 0, 4.0 * static_cast<double>(count),
            [&] { ops_.sum_of_squares(stream_, a.gradient, sum); });
    measure("scale", 0, 8.0 * static_cast<double>(count), [&] { ops_.scale(stream_, 1.0F, gradient); });
    measure("fill_zero", 0, 4.0 * static_cast<double>(count), [&] { ops_.fill_zero(stream_, gradient); });
    const TensorView half = random(DType::bfloat16, 1, count);
    measure("cast to bfloat16", 0, 6.0 * static_cast<double>(count), [&] { ops_.cast(stream_, a.parameter, half); });
    measure("cast from bfloat16", 0, 6.0 * static_cast<double>(count), [&] { ops_.cast(stream_, half, a.parameter); });
    buffers_.clear();
  }

  Device& device_;
  Ops& ops_;
  Stream& stream_;
  BenchShape s_;
  DType dtype_;
  double seconds_;
  std::vector<Buffer> buffers_;
  std::vector<OpRate> rates_;
};

}  // namespace

std::vector<OpRate> bench_ops(Device& device, const BenchShape& shape, DType compute_dtype, double seconds) {
  return OpBench(device, shape, compute_dtype, seconds).run();
}

std::vector<OpRate> bench_products(Device& device, const BenchShape& shape, DType compute_dtype, double seconds) {
  return OpBench(device, shape, compute_dtype, seconds).run_products();
}

std::vector<OpRate> bench_attention(Device& device, const BenchShape& shape, std::int64_t length, DType compute_dtype,
                                    double seconds) {
  return OpBench(device, shape, compute_dtype, seconds).run_attention(length);
}

}  // namespace skrull
