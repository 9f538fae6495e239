#include "skrull/device/attention_operands.h"

#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "skrull/device/operands.h"

namespace skrull {

namespace {

void check_fp32(std::string_view operation, std::string_view operand, const ConstTensorView& view, std::int64_t rows,
                std::int64_t cols) {
  check_shape(operation, operand, view, rows, cols);
  check_dtype(operation, operand, view, DType::float32);
}

/// Throws when two of the ranges [begin, begin + length) meet.
void check_disjoint(std::string_view operation, std::string_view what,
                    std::vector<std::pair<std::int64_t, std::int64_t>> ranges) {
  std::sort(ranges.begin(), ranges.end());
  for (std::size_t i = 1; i < ranges.size(); ++i) {
    const auto& [begin, length] = ranges[i - 1];
    require(begin + length <= ranges[i].first, "{}: {} rows {}+{} and {}+{} of two segments overlap", operation, what,
            begin, length, ranges[i].first, ranges[i].second);
  }
}

/// With `keys_once`, key rows too may lie in one segment only.
void check_inputs(std::string_view operation, const AttentionShape& shape, std::span<const AttentionSegment> segments,
                  const ConstTensorView& q, const ConstTensorView& k, const ConstTensorView& v, bool keys_once) {
  require(shape.num_heads > 0 && shape.num_kv_heads > 0 && shape.num_heads % shape.num_kv_heads == 0 &&
              shape.head_dim > 0 && shape.scale >= 0,
          "{}: {} heads, {} key-value heads of size {}, scale {}: expected positive numbers, the first a multiple of "
          "the second",
          operation, shape.num_heads, shape.num_kv_heads, shape.head_dim, shape.scale);
  check_computable(operation, "q", q);
  check_shape(operation, "q", q, q.rows(), shape.num_heads * shape.head_dim);
  for (const auto& [name, view] : {std::pair{"k", k}, std::pair{"v", v}}) {
    check_dtype(operation, name, view, q.dtype());
    check_shape(operation, name, view, k.rows(), shape.num_kv_heads * shape.head_dim);
  }
  std::vector<std::pair<std::int64_t, std::int64_t>> queries;
  std::vector<std::pair<std::int64_t, std::int64_t>> keys;
  for (const AttentionSegment& s : segments) {
    require(s.q_len >= 0 && s.k_len >= 0 && s.q_begin >= 0 && s.k_begin >= 0 && s.q_begin + s.q_len <= q.rows() &&
                s.k_begin + s.k_len <= k.rows(),
            "{}: a segment of queries {}+{} and keys {}+{} does not fit {} query rows and {} key rows", operation,
            s.q_begin, s.q_len, s.k_begin, s.k_len, q.rows(), k.rows());
    if (s.q_len > 0) queries.emplace_back(s.q_begin, s.q_len);
    if (s.k_len > 0) keys.emplace_back(s.k_begin, s.k_len);
  }
  check_disjoint(operation, "query", std::move(queries));
  if (keys_once) check_disjoint(operation, "key", std::move(keys));
}

void check_out(std::string_view operation, const ConstTensorView& out, const ConstTensorView& q) {
  check_shape(operation, "out", out, q.rows(), q.cols());
  if (out.dtype() != q.dtype()) check_dtype(operation, "out", out, DType::float32);
}

}  // namespace

void check_attention_forward(const AttentionForward& attention) {
  constexpr std::string_view name = "attention_forward";
  const ConstTensorView& q = attention.q;
  check_inputs(name, attention.shape, attention.segments, q, attention.k, attention.v, false);
  check_out(name, attention.out, q);
  check_fp32(name, "lse", attention.lse, q.rows(), attention.shape.num_heads);
}

void check_attention_backward(const AttentionBackward& attention) {
  constexpr std::string_view name = "attention_backward";
  const ConstTensorView& q = attention.q;
  const ConstTensorView& k = attention.k;
  check_inputs(name, attention.shape, attention.segments, q, k, attention.v, true);
  check_out(name, attention.out, q);
  check_dtype(name, "dout", attention.dout, q.dtype());
  check_shape(name, "dout", attention.dout, q.rows(), q.cols());
  check_fp32(name, "lse", attention.lse, q.rows(), attention.shape.num_heads);
  check_fp32(name, "delta", attention.delta, q.rows(), attention.shape.num_heads);
  check_fp32(name, "dq", attention.dq, q.rows(), q.cols());
  check_fp32(name, "dk", attention.dk, k.rows(), k.cols());
  check_fp32(name, "dv", attention.dv, k.rows(), k.cols());
}

void check_attention_merge(std::int64_t head_dim, const ConstTensorView& partial_out,
                           const ConstTensorView& partial_lse, const ConstTensorView& out, const ConstTensorView& lse) {
  constexpr std::string_view name = "attention_merge";
  const std::int64_t rows = lse.rows();
  const std::int64_t heads = lse.cols();
  check_fp32(name, "lse", lse, rows, heads);
  check_fp32(name, "partial_lse", partial_lse, rows, heads);
  check_fp32(name, "out", out, rows, heads * head_dim);
  check_fp32(name, "partial_out", partial_out, rows, heads * head_dim);
}

void check_attention_delta(std::int64_t head_dim, const ConstTensorView& out, const ConstTensorView& dout,
                           const ConstTensorView& delta) {
  constexpr std::string_view name = "attention_delta";
  check_fp32(name, "delta", delta, delta.rows(), delta.cols());
  for (const auto& [operand, view] : {std::pair{"out", out}, std::pair{"dout", dout}}) {
    check_computable(name, operand, view);
    check_shape(name, operand, view, delta.rows(), delta.cols() * head_dim);
  }
}

}  // namespace skrull
