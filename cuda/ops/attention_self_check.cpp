#include "ops/attention_self_check.h"

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <vector>

#include "device/cuda_stream.h"
#include "ops/native_attention.h"
#include "skrull/core/dtype.h"
#include "skrull/core/rng.h"

namespace skrull {
namespace {

constexpr std::int64_t unused_rows = 3;  ///< in front: what is in no sequence must stay as it is
constexpr std::array<std::int64_t, 4> sequence_lengths = {1, 77, 300, 600};
constexpr std::array<std::int64_t, 2> head_dims = {64, 128};

/// Values lie in (-1, 1): two roundings to bf16 differ by one step, 2^-8 there; weights enter products in bf16 too.
constexpr float out_tolerance = 1.0F / 64;
constexpr float lse_tolerance = 1e-3F;
/// Of a gradient, or of the root mean square of its matrix where that is larger.
constexpr float gradient_tolerance = 1.0F / 32;

/// What results hold before: a forward replaces it, a backward adds to it.
constexpr float before_forward = 7.0F;
constexpr float before_backward = 0.25F;

std::vector<AttentionSegment> packed_segments() {
  std::vector<AttentionSegment> segments;
  std::int64_t begin = unused_rows;
  for (const std::int64_t length : sequence_lengths) {
    segments.push_back({begin, length, begin, length, true});
    begin += length;
  }
  return segments;
}

/// A result of one engine on the host.
struct Outcome {
  std::string_view name;
  std::int64_t columns;
  std::vector<float> values;
  bool operator==(const Outcome&) const = default;
};

/// How far an element may be from the value it should have.
struct Tolerance {
  float absolute;
  float relative;
  float before;  ///< what relates to nothing
};

Tolerance tolerance_of_gradient(const Outcome& expected) {
  double squares = 0;
  for (const float value : expected.values) squares += (value - before_backward) * (value - before_backward);
  const double mean = squares / static_cast<double>(expected.values.size());
  return {gradient_tolerance * static_cast<float>(std::sqrt(mean)), gradient_tolerance, before_backward};
}

/// The first element that is further from the expected one than allowed, or not a number.
std::string difference(const Outcome& found, const Outcome& expected, const Tolerance& tolerance) {
  for (std::size_t i = 0; i < found.values.size(); ++i) {
    const float value = found.values[i];
    const float wanted = expected.values[i];
    const float allowed = std::max(tolerance.absolute, tolerance.relative * std::abs(wanted - tolerance.before));
    if (std::abs(value - wanted) <= allowed) continue;
    const auto index = static_cast<std::int64_t>(i);
    return fmt::format("{} at row {}, column {} is {} where {} was expected", found.name, index / found.columns,
                       index % found.columns, value, wanted);
  }
  return "";
}

/// Random operands of a shape, and what engines make of them.
class Trial {
 public:
  Trial(Device& device, std::int64_t head_dim)
      : device_(device),
        shape_{4, 2, head_dim, 1.0F / std::sqrt(static_cast<float>(head_dim))},
        segments_(packed_segments()),
        rows_(segments_.back().q_begin + segments_.back().q_len) {
    const std::int64_t query_columns = shape_.num_heads * head_dim;
    const std::int64_t key_columns = shape_.num_kv_heads * head_dim;
    const auto parts = [&](const auto& fused) {
      return std::array{fused.slice_cols(0, query_columns), fused.slice_cols(query_columns, key_columns),
                        fused.slice_cols(query_columns + key_columns, key_columns)};
    };
    const auto [q, k, v] = parts(random_matrix(query_columns + 2 * key_columns));
    const auto [dq, dk, dv] = parts(matrix(DType::float32, query_columns + 2 * key_columns));
    const TensorView out = matrix(DType::bfloat16, query_columns);
    const TensorView lse = matrix(DType::float32, shape_.num_heads);
    const TensorView delta = matrix(DType::float32, shape_.num_heads);
    forward_ = {.shape = shape_, .segments = segments_, .q = q, .k = k, .v = v, .out = out, .lse = lse};
    backward_ = {.shape = shape_,
                 .segments = segments_,
                 .q = q,
                 .k = k,
                 .v = v,
                 .out = out,
                 .dout = random_matrix(query_columns),
                 .lse = lse,
                 .delta = delta,
                 .dq = dq,
                 .dk = dk,
                 .dv = dv};
    delta_ = delta;
  }

  const AttentionForward& forward() const { return forward_; }
  const AttentionBackward& backward() const { return backward_; }

  std::vector<Outcome> forward_by(AttentionEngine& engine) {
    return outcomes(engine, forward_, before_forward,
                    {{"the result", forward_.out}, {"the log-sum-exp", forward_.lse}});
  }
  /// After a forward, of its result.
  std::vector<Outcome> backward_by(AttentionEngine& engine) {
    const AttentionBackward& a = backward_;
    attention::delta(cuda_stream(device_.compute_stream()), shape_.head_dim, a.out, a.dout, delta_);
    return outcomes(
        engine, a, before_backward,
        {{"the gradient of queries", a.dq}, {"the gradient of keys", a.dk}, {"the gradient of values", a.dv}});
  }

 private:
  struct Result {
    std::string_view name;
    TensorView view;
  };

  TensorView matrix(DType dtype, std::int64_t columns) {
    buffers_.push_back(device_.allocate(dtype, rows_, columns, "self-check"));
    return buffers_.back().view(dtype, rows_, columns);
  }
  TensorView random_matrix(std::int64_t columns) {
    const TensorView view = matrix(DType::bfloat16, columns);
    Rng rng(1, fmt::format("attention self-check {}", buffers_.size()));
    std::vector<bfloat16> values(static_cast<std::size_t>(view.elements()));
    for (bfloat16& value : values) value = bfloat16(static_cast<float>(2 * rng.uniform() - 1));
    device_.copy_to_device(device_.compute_stream(), view, values.data());
    return view;
  }

  template <class T>
  void fill(const TensorView& view, float value) {
    const std::vector<T> values(static_cast<std::size_t>(view.elements()), T(value));
    device_.copy_to_device(device_.compute_stream(), view, values.data());
  }
  template <class T>
  std::vector<float> host_values(const TensorView& view) {
    std::vector<T> values(static_cast<std::size_t>(view.elements()));
    device_.copy_to_host(device_.compute_stream(), values.data(), view);
    device_.compute_stream().synchronize();
    return {values.begin(), values.end()};
  }

  template <class Attention>
  std::vector<Outcome> outcomes(AttentionEngine& engine, const Attention& attention, float before,
                                const std::vector<Result>& results) {
    for (const auto& [name, view] : results) {
      view.dtype() == DType::bfloat16 ? fill<bfloat16>(view, before) : fill<float>(view, before);
    }
    engine.run(device_.compute_stream(), attention);
    std::vector<Outcome> outcomes;
    for (const auto& [name, view] : results) {
      outcomes.push_back({name, view.cols(),
                          view.dtype() == DType::bfloat16 ? host_values<bfloat16>(view) : host_values<float>(view)});
    }
    return outcomes;
  }

  Device& device_;
  AttentionShape shape_;
  std::vector<AttentionSegment> segments_;
  std::int64_t rows_;
  std::vector<Buffer> buffers_;
  AttentionForward forward_;
  AttentionBackward backward_;
  TensorView delta_;
};

std::string compare_forward(Trial& trial, AttentionEngine& engine, AttentionEngine& reference) {
  if (const auto obstacle = engine.obstacle(trial.forward()); !obstacle.empty()) return std::string(obstacle);
  const std::vector<Outcome> found = trial.forward_by(engine);
  const std::vector<Outcome> expected = trial.forward_by(reference);
  std::string problem = difference(found[0], expected[0], {out_tolerance, 0, 0});
  if (problem.empty()) problem = difference(found[1], expected[1], {lse_tolerance, 0, 0});
  return problem;
}

std::string compare_backward(Trial& trial, AttentionEngine& engine, AttentionEngine& reference, bool deterministic) {
  if (const auto obstacle = engine.obstacle(trial.backward()); !obstacle.empty()) return std::string(obstacle);
  trial.forward_by(reference);
  const std::vector<Outcome> found = trial.backward_by(engine);
  const std::vector<Outcome> expected = trial.backward_by(reference);
  std::string problem;
  for (std::size_t i = 0; i < found.size() && problem.empty(); ++i) {
    problem = difference(found[i], expected[i], tolerance_of_gradient(expected[i]));
  }
  if (problem.empty() && deterministic && trial.backward_by(engine) != found) problem = "it gave other bits again";
  return problem;
}

/// Calls compare(trial) for every kind of head until something is wrong.
template <class Compare>
std::string compare_all(Device& device, Compare&& compare) {
  for (const std::int64_t head_dim : head_dims) {
    Trial trial(device, head_dim);
    const std::string problem = compare(trial);
    if (!problem.empty()) return fmt::format("{}, of heads of {}", problem, head_dim);
  }
  return "";
}

}  // namespace

std::string compare_attention_forward(Device& device, AttentionEngine& engine, AttentionEngine& reference) {
  return compare_all(device, [&](Trial& trial) { return compare_forward(trial, engine, reference); });
}

std::string compare_attention_backward(Device& device, AttentionEngine& engine, AttentionEngine& reference,
                                       bool deterministic) {
  return compare_all(device, [&](Trial& trial) { return compare_backward(trial, engine, reference, deterministic); });
}

}  // namespace skrull
