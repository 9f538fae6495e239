// Attention over segments, forward and backward, and the merge of partial results.

#include <cmath>
#include <limits>

#include "ops_check/attention_reference.h"
#include "ops_check/check_case.h"
#include "skrull/core/error.h"

namespace skrull {

namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

struct AttentionCase {
  std::string name;
  std::int64_t heads, kv_heads, head_dim;
  std::int64_t queries, keys;  ///< rows, of which segments may leave some out
  std::vector<AttentionSegment> segments;
  std::int64_t padding = 0;
  double size = 1;  ///< of queries and keys
};

/// Whole causal sequences, back to back.
std::vector<AttentionSegment> packed(const std::vector<std::int64_t>& lengths) {
  std::vector<AttentionSegment> segments;
  std::int64_t begin = 0;
  for (const std::int64_t length : lengths) {
    segments.push_back({begin, length, begin, length, true});
    begin += length;
  }
  return segments;
}

std::vector<AttentionCase> attention_cases(const CheckContext& context) {
  std::vector<AttentionCase> cases = {
      {"no segment", 2, 1, 64, 3, 3, {}},
      {"one token", 2, 1, 64, 1, 1, packed({1})},
      {"lengths 1, 40, 2, 23", 2, 2, 64, 66, 66, packed({1, 40, 2, 23})},
      {"lengths 70, 0, 5", 4, 2, 128, 75, 75, packed({70, 0, 5}), 64},
      {"grouped heads", 14, 2, 64, 37, 37, packed({37})},
      {"small heads", 3, 1, 16, 65, 65, packed({65}), 16},
      {"odd heads", 2, 1, 33, 20, 20, packed({20}), 1},
      {"head size 80", 2, 1, 80, 33, 33, packed({33})},
      {"largest heads", 1, 1, 256, 40, 40, packed({40})},
      {"part, full, 7 x 90", 2, 1, 64, 12, 95, {{3, 7, 5, 90, false}}},
      {"part, full, 90 x 7", 2, 1, 64, 95, 12, {{3, 90, 5, 7, false}}},
      {"part, causal, 20 x 60", 4, 2, 64, 20, 60, {{0, 20, 0, 60, true}}},
      {"part, causal, 30 rows without keys", 4, 2, 64, 40, 10, {{0, 40, 0, 10, true}}},
      {"a segment without keys", 2, 1, 64, 9, 9, {{0, 4, 0, 0, false}, {4, 5, 4, 5, true}}},
      {"scores up to a hundred", 2, 1, 64, 50, 50, packed({50}), 0, 4},
  };
  if (!context.small_shapes_only) {
    cases.push_back({"lengths around tiles", 2, 1, 128, 512, 512, packed({63, 64, 65, 127, 193})});
    cases.push_back({"length 700", 3, 1, 64, 700, 700, packed({700}), 8});
    cases.push_back({"part, full, 300 x 257", 7, 1, 128, 300, 257, {{0, 300, 0, 257, false}}});
  }
  return cases;
}

/// The operands of a case on the host, and what must come out.
struct Problem {
  Problem(const CheckContext& context, const AttentionCase& s)
      : segments(s.segments),
        shape{s.heads, s.kv_heads, s.head_dim, static_cast<float>(1 / std::sqrt(static_cast<double>(s.head_dim)))},
        q(matrix(context, s.queries, s.heads * s.head_dim, "q", s)),
        k(matrix(context, s.keys, s.kv_heads * s.head_dim, "k", s)),
        v(HostMatrix::random(context.dtype, s.keys, s.kv_heads * s.head_dim, "v", 1, s.padding)),
        dout(HostMatrix::random(context.dtype, s.queries, s.heads * s.head_dim, "dout", 1, s.padding)),
        exact(attention_reference(shape, segments, std::as_const(q).view(), std::as_const(k).view(),
                                  std::as_const(v).view(), std::as_const(dout).view())),
        in_segment(static_cast<std::size_t>(s.queries)) {
    for (const AttentionSegment& segment : segments) {
      for (std::int64_t i = 0; i < segment.q_len; ++i) in_segment[static_cast<std::size_t>(segment.q_begin + i)] = true;
    }
    // Products and sums of a score are fp32, and so is its difference to the log-sum-exp. In bfloat16, probabilities
    // and their gradients are rounded once more before they enter a product.
    const double score_error = sum_error(s.head_dim, exact.score_size) + float_error(6, exact.score_size + 1);
    factor_error = 2 * score_error + (context.dtype == DType::bfloat16 ? 1.01 * rounding_of(DType::bfloat16) : 0);
    row_error = score_error;
  }

  static HostMatrix matrix(const CheckContext& context, std::int64_t rows, std::int64_t cols, std::string_view name,
                           const AttentionCase& s) {
    return HostMatrix::random(context.dtype, rows, cols, name, s.size, s.padding);
  }

  /// An element of a sum of `terms` products, on top of what the memory held.
  Expected of(const ReferenceSums& sums, std::int64_t cols, std::int64_t row, std::int64_t col, std::int64_t terms,
              double factor_roundings, double before = 0) const {
    const auto i = static_cast<std::size_t>(row * cols + col);
    const double size = sums.sizes[i];
    return {before + sums.values[i],
            factor_roundings * factor_error * size + sum_error(terms, size) + float_error(4, size + std::abs(before))};
  }

  std::vector<AttentionSegment> segments;
  AttentionShape shape;
  HostMatrix q, k, v, dout;
  AttentionReference exact;
  std::vector<bool> in_segment;  ///< of query rows
  double factor_error = 0;       ///< relative, of a probability as it enters a product
  double row_error = 0;          ///< absolute, of a log-sum-exp
};

void check_forward(CheckContext& context, const AttentionCase& s, DType out_dtype) {
  CheckCase c(context, s.name + " to " + std::string(name_of(out_dtype)));
  const Problem p(context, s);
  const std::int64_t width = s.heads * s.head_dim;
  const HostMatrix out_before = HostMatrix::random(out_dtype, s.queries, width, "old out", 1, s.padding);
  const HostMatrix lse_before = HostMatrix::random(DType::float32, s.queries, s.heads, "old lse", 1, s.padding);
  const ConstTensorView q = c.input(p.q);
  const ConstTensorView k = c.input(p.k);
  const ConstTensorView v = c.input(p.v);
  auto& out = c.result("out", out_before);
  auto& lse = c.result("lse", lse_before);
  c.run([&](Ops& ops, Stream& stream) {
    ops.attention_forward(stream, {p.shape, p.segments, q, k, v, out.view(), lse.view()});
  });
  c.expect(out, [&](std::int64_t row, std::int64_t col) {
    if (!p.in_segment[static_cast<std::size_t>(row)]) return Expected{out_before(row, col)};
    return p.of(p.exact.out, width, row, col, s.keys, 1);
  });
  c.expect(lse, [&](std::int64_t row, std::int64_t head) {
    if (!p.in_segment[static_cast<std::size_t>(row)]) return Expected{lse_before(row, head)};
    const double value = p.exact.lse[static_cast<std::size_t>(row * s.heads + head)];
    return Expected{value,
                    std::isinf(value) ? 0 : p.row_error + sum_error(s.keys, 1) + float_error(4, std::abs(value))};
  });
}

void check_backward(CheckContext& context, const AttentionCase& s) {
  CheckCase c(context, s.name);
  const Problem p(context, s);
  const std::int64_t query_width = s.heads * s.head_dim;
  const std::int64_t key_width = s.kv_heads * s.head_dim;
  HostMatrix out(context.dtype, s.queries, query_width, s.padding);
  HostMatrix lse(DType::float32, s.queries, s.heads, s.padding);
  HostMatrix delta(DType::float32, s.queries, s.heads, s.padding);
  const auto index = [&](std::int64_t row, std::int64_t head) {
    return static_cast<std::size_t>(row * s.heads + head);
  };
  out.fill([&](std::int64_t row, std::int64_t col) {
    return p.exact.out.values[static_cast<std::size_t>(row * query_width + col)];
  });
  lse.fill([&](std::int64_t row, std::int64_t head) { return p.exact.lse[index(row, head)]; });
  delta.fill([&](std::int64_t row, std::int64_t head) { return p.exact.delta[index(row, head)]; });
  const auto before = [&](std::int64_t rows, std::int64_t cols, std::string_view name) {
    return HostMatrix::random(DType::float32, rows, cols, name, 1, s.padding);
  };
  const HostMatrix dq_before = before(s.queries, query_width, "dq");
  const HostMatrix dk_before = before(s.keys, key_width, "dk");
  const HostMatrix dv_before = before(s.keys, key_width, "dv");
  AttentionBackward a{p.shape,         p.segments,   c.input(p.q),   c.input(p.k), c.input(p.v), c.input(out),
                      c.input(p.dout), c.input(lse), c.input(delta), {},           {},           {}};
  auto& dq = c.result("dq", dq_before);
  auto& dk = c.result("dk", dk_before);
  auto& dv = c.result("dv", dv_before);
  a.dq = dq.view();
  a.dk = dk.view();
  a.dv = dv.view();
  c.run([&](Ops& ops, Stream& stream) { ops.attention_backward(stream, a); });
  // A score's gradient carries the error of its probability, its own rounding and the sums of d terms in it; and that
  // of `out`, where delta is formed of it again, which engines for bfloat16 alone do.
  const double roundings = context.dtype == DType::bfloat16 ? 3 : 2;
  const double dscore_share = roundings + sum_error(s.head_dim, 1) / p.factor_error;
  const std::int64_t queries_of_key = s.queries * (s.heads / s.kv_heads);
  const auto expect = [&](const CheckCase::Result& result, const ReferenceSums& exact, const HostMatrix& old,
                          std::int64_t width, std::int64_t terms, double factor_roundings) {
    c.expect(result, [&, width, terms, factor_roundings](std::int64_t row, std::int64_t col) {
      Expected sum = p.of(exact, width, row, col, terms, factor_roundings, old(row, col));
      const double share = exact.values[static_cast<std::size_t>(row * width + col)];
      if (context.dtype == DType::bfloat16) sum.error += rounding_of(DType::bfloat16) * std::abs(share);
      return sum;
    });
  };
  expect(dq, p.exact.dq, dq_before, query_width, s.keys, dscore_share);
  expect(dk, p.exact.dk, dk_before, key_width, queries_of_key, dscore_share);
  expect(dv, p.exact.dv, dv_before, key_width, queries_of_key, 1);
}

void check_delta(CheckContext& context, DType out_dtype, DType dout_dtype, std::int64_t rows, std::int64_t head_dim) {
  constexpr std::int64_t heads = 3;
  CheckCase c(context, fmt::format("{} rows, 3 heads of {}, out {}, dout {}", rows, head_dim, name_of(out_dtype),
                                   name_of(dout_dtype)));
  const HostMatrix out = HostMatrix::random(out_dtype, rows, heads * head_dim, "out", 1, 8);
  const HostMatrix dout = HostMatrix::random(dout_dtype, rows, heads * head_dim, "dout");
  const ConstTensorView out_view = c.input(out);
  const ConstTensorView dout_view = c.input(dout);
  auto& delta = c.result("delta", HostMatrix::random(DType::float32, rows, heads, "old", 1, 2));
  c.run([&](Ops& ops, Stream& stream) { ops.attention_delta(stream, head_dim, out_view, dout_view, delta.view()); });
  c.expect(delta, [&](std::int64_t row, std::int64_t head) {
    Expected sum;
    double size = 0;
    for (std::int64_t i = head * head_dim; i < (head + 1) * head_dim; ++i) {
      sum.value += out(row, i) * dout(row, i);
      size += std::abs(out(row, i) * dout(row, i));
    }
    sum.error = sum_error(head_dim + 1, size);
    return sum;
  });
}

}  // namespace

void check_attention_forward(CheckContext& context) {
  for (const AttentionCase& s : attention_cases(context)) {
    check_forward(context, s, DType::float32);
    if (context.dtype == DType::bfloat16) check_forward(context, s, DType::bfloat16);
  }
}

void check_attention_backward(CheckContext& context) {
  for (const AttentionCase& s : attention_cases(context)) check_backward(context, s);
}

// Log-sum-exps of both sides near and far from each other, and -infinity on one side and on both.
void check_attention_merge(CheckContext& context) {
  for (const std::int64_t head_dim : {1, 33, 64, 256}) {
    constexpr std::int64_t rows = 9;
    constexpr std::int64_t heads = 3;
    CheckCase c(context, std::to_string(rows) + " rows, 3 heads of " + std::to_string(head_dim));
    const HostMatrix partial_out = HostMatrix::random(DType::float32, rows, heads * head_dim, "partial", 1, 4);
    const HostMatrix out_before = HostMatrix::random(DType::float32, rows, heads * head_dim, "whole", 1, 8);
    const double partial_lses[rows] = {0, 3, -40, 200, -infinity, 1.5, -infinity, -1e4, 88};
    const double lses[rows] = {0, 2.5, 30, -200, 1, -infinity, -infinity, 1e4, 0};
    HostMatrix partial_lse(DType::float32, rows, heads, 1);
    partial_lse.fill(
        [&](std::int64_t row, std::int64_t head) { return partial_lses[row] + 0.25 * static_cast<double>(head); });
    HostMatrix lse_before(DType::float32, rows, heads);
    lse_before.fill([&](std::int64_t row, std::int64_t) { return lses[row]; });
    const ConstTensorView partial_out_view = c.input(partial_out);
    const ConstTensorView partial_lse_view = c.input(partial_lse);
    auto& out = c.result("out", out_before);
    auto& lse = c.result("lse", lse_before);
    c.run([&](Ops& ops, Stream& stream) {
      ops.attention_merge(stream, head_dim, partial_out_view, partial_lse_view, out.view(), lse.view());
    });
    const auto joined_lse = [&](std::int64_t row, std::int64_t head) {
      const double a = lse_before(row, head);
      const double b = partial_lse(row, head);
      const double larger = std::max(a, b);
      return std::isinf(larger) ? larger : larger + std::log1p(std::exp(std::min(a, b) - larger));
    };
    c.expect(lse, [&](std::int64_t row, std::int64_t head) {
      const double value = joined_lse(row, head);
      return Expected{value, std::isinf(value) ? 0 : float_error(4, std::abs(value) + 1)};
    });
    c.expect(out, [&](std::int64_t row, std::int64_t col) {
      const std::int64_t head = col / head_dim;
      const double joined = joined_lse(row, head);
      if (std::isinf(joined)) return Expected{out_before(row, col)};
      const double kept = std::exp(lse_before(row, head) - joined) * out_before(row, col);
      const double taken = std::exp(partial_lse(row, head) - joined) * partial_out(row, col);
      // A weight is e to a difference, which is rounded; weights that far apart that it counts are 0 and 1.
      const double apart = std::min(std::abs(lse_before(row, head) - partial_lse(row, head)), 100.0);
      return Expected{kept + taken, float_error(8 + 2 * apart, std::abs(kept) + std::abs(taken))};
    });
  }
}

void check_attention_delta(CheckContext& context) {
  for (const DType out_dtype : {DType::float32, context.dtype}) {
    for (const DType dout_dtype : {DType::float32, context.dtype}) {
      for (const std::int64_t head_dim : {1, 33, 64, 256}) {
        for (const std::int64_t rows : {0, 1, 7}) check_delta(context, out_dtype, dout_dtype, rows, head_dim);
      }
    }
  }
}

}  // namespace skrull
