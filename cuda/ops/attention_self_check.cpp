#include "ops/attention_self_check.h"

#include <spdlog/fmt/fmt.h>

#include <array>
#include <cmath>
#include <cstdint>
#include <vector>

#include "skrull/core/dtype.h"
#include "skrull/core/rng.h"

namespace skrull {
namespace {

constexpr std::int64_t unused_rows = 3;  ///< in front: what is in no sequence must stay as it is
constexpr std::array<std::int64_t, 4> sequence_lengths = {1, 77, 300, 600};
constexpr float untouched = 7.0F;

/// Values lie in (-1, 1): two roundings to bf16 differ by one step, 2^-8 there; weights enter products in bf16 too.
constexpr float out_tolerance = 1.0F / 64;
constexpr float lse_tolerance = 1e-3F;

std::vector<AttentionSegment> packed_segments() {
  std::vector<AttentionSegment> segments;
  std::int64_t begin = unused_rows;
  for (const std::int64_t length : sequence_lengths) {
    segments.push_back({begin, length, begin, length, true});
    begin += length;
  }
  return segments;
}

/// Results of one engine on the host.
struct Outcome {
  std::vector<bfloat16> out;
  std::vector<float> lse;
};

class Comparison {
 public:
  Comparison(Device& device, const AttentionShape& shape)
      : device_(device),
        shape_(shape),
        segments_(packed_segments()),
        rows_(segments_.back().q_begin + segments_.back().q_len),
        qkv_(buffer(DType::bfloat16, qkv_columns())),
        out_(buffer(DType::bfloat16, query_columns())),
        lse_(buffer(DType::float32, shape.num_heads)) {
    std::vector<bfloat16> values(static_cast<std::size_t>(rows_ * qkv_columns()));
    Rng rng(1, "attention self-check");
    for (bfloat16& value : values) value = bfloat16(static_cast<float>(2 * rng.uniform() - 1));
    device_.copy_to_device(device_.compute_stream(), qkv_.view(DType::bfloat16, rows_, qkv_columns()), values.data());
  }

  bool taken_by(AttentionEngine& engine) { return engine.obstacle(call()).empty(); }

  Outcome outcome(AttentionEngine& engine) {
    Outcome result{std::vector(static_cast<std::size_t>(rows_ * query_columns()), bfloat16(untouched)),
                   std::vector(static_cast<std::size_t>(rows_ * shape_.num_heads), untouched)};
    Stream& stream = device_.compute_stream();
    const AttentionForward attention = call();
    device_.copy_to_device(stream, attention.out, result.out.data());
    device_.copy_to_device(stream, attention.lse, result.lse.data());
    engine.run(stream, attention);
    device_.copy_to_host(stream, result.out.data(), attention.out);
    device_.copy_to_host(stream, result.lse.data(), attention.lse);
    stream.synchronize();
    return result;
  }

 private:
  std::int64_t query_columns() const { return shape_.num_heads * shape_.head_dim; }
  std::int64_t key_columns() const { return shape_.num_kv_heads * shape_.head_dim; }
  std::int64_t qkv_columns() const { return query_columns() + 2 * key_columns(); }
  Buffer buffer(DType dtype, std::int64_t columns) { return device_.allocate(dtype, rows_, columns, "self-check"); }

  AttentionForward call() const {
    const ConstTensorView qkv = qkv_.view(DType::bfloat16, rows_, qkv_columns());
    return {.shape = shape_,
            .segments = segments_,
            .q = qkv.slice_cols(0, query_columns()),
            .k = qkv.slice_cols(query_columns(), key_columns()),
            .v = qkv.slice_cols(query_columns() + key_columns(), key_columns()),
            .out = out_.view(DType::bfloat16, rows_, query_columns()),
            .lse = lse_.view(DType::float32, rows_, shape_.num_heads)};
  }

  Device& device_;
  AttentionShape shape_;
  std::vector<AttentionSegment> segments_;
  std::int64_t rows_;
  Buffer qkv_, out_, lse_;
};

/// The first element that is further from the expected one than `tolerance`, or not a number.
template <class T>
std::string difference(std::string_view what, const std::vector<T>& found, const std::vector<T>& expected,
                       std::int64_t columns, float tolerance) {
  for (std::size_t i = 0; i < found.size(); ++i) {
    const auto value = static_cast<float>(found[i]);
    const auto wanted = static_cast<float>(expected[i]);
    if (std::abs(value - wanted) <= tolerance) continue;
    const auto index = static_cast<std::int64_t>(i);
    return fmt::format("{} at row {}, column {} is {} where {} was expected", what, index / columns, index % columns,
                       value, wanted);
  }
  return "";
}

std::string compare(Device& device, AttentionEngine& engine, AttentionEngine& reference, const AttentionShape& shape) {
  Comparison comparison(device, shape);
  if (!comparison.taken_by(engine)) return "";
  const Outcome found = comparison.outcome(engine);
  const Outcome expected = comparison.outcome(reference);
  std::string problem =
      difference("the result", found.out, expected.out, shape.num_heads * shape.head_dim, out_tolerance);
  if (problem.empty()) problem = difference("the log-sum-exp", found.lse, expected.lse, shape.num_heads, lse_tolerance);
  return problem;
}

}  // namespace

std::string compare_attention(Device& device, AttentionEngine& engine, AttentionEngine& reference) {
  for (const std::int64_t head_dim : {64, 128}) {
    const AttentionShape shape{4, 2, head_dim, 1.0F / std::sqrt(static_cast<float>(head_dim))};
    const std::string problem = compare(device, engine, reference, shape);
    if (!problem.empty()) return fmt::format("{}, of heads of {}", problem, head_dim);
  }
  return "";
}

}  // namespace skrull
