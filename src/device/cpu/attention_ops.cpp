// Checks of attention's operands; the kernels are in attention.cpp.

#include <vector>

#include "cpu/attention.h"
#include "cpu/cpu_ops.h"
#include "cpu/kernel.h"

namespace skrull {

namespace {

void check_heads(std::string_view operation, const AttentionShape& shape) {
  require(
      shape.num_heads > 0 && shape.num_kv_heads > 0 && shape.num_heads % shape.num_kv_heads == 0 && shape.head_dim > 0,
      "{}: {} heads, {} key-value heads of size {}, expected positive numbers, the first a multiple of the second",
      operation, shape.num_heads, shape.num_kv_heads, shape.head_dim);
}

void check_segments(std::string_view operation, std::span<const AttentionSegment> segments, std::int64_t q_rows,
                    std::int64_t k_rows) {
  for (const AttentionSegment& s : segments) {
    require(s.q_begin >= 0 && s.q_len >= 0 && s.q_begin + s.q_len <= q_rows && s.k_begin >= 0 && s.k_len >= 0 &&
                s.k_begin + s.k_len <= k_rows,
            "{}: a segment of queries {}+{} and keys {}+{} does not fit {} query rows and {} key rows", operation,
            s.q_begin, s.q_len, s.k_begin, s.k_len, q_rows, k_rows);
  }
}

void check_inputs(std::string_view operation, const AttentionShape& shape, const ConstTensorView& q,
                  const ConstTensorView& k, const ConstTensorView& v) {
  check_heads(operation, shape);
  check_computable(operation, "q", q);
  check_shape(operation, "q", q, q.rows(), shape.num_heads * shape.head_dim);
  check_dtype(operation, "k", k, q.dtype());
  check_shape(operation, "k", k, k.rows(), shape.num_kv_heads * shape.head_dim);
  check_dtype(operation, "v", v, q.dtype());
  check_shape(operation, "v", v, k.rows(), shape.num_kv_heads * shape.head_dim);
}

void check_fp32(std::string_view operation, std::string_view operand, const ConstTensorView& view, std::int64_t rows,
                std::int64_t cols) {
  check_dtype(operation, operand, view, DType::float32);
  check_shape(operation, operand, view, rows, cols);
}

/// The arguments with their segments, which the caller's span need not outlive.
template <class Attention>
struct Owned {
  explicit Owned(const Attention& arguments)
      : segments(arguments.segments.begin(), arguments.segments.end()), attention(arguments) {}

  std::vector<AttentionSegment> segments;
  Attention attention;
};

}  // namespace

void CpuOps::attention_forward(Stream& stream, const AttentionForward& attention) {
  const AttentionForward& a = attention;
  check_inputs("attention_forward", a.shape, a.q, a.k, a.v);
  check_computable("attention_forward", "out", a.out);
  check_shape("attention_forward", "out", a.out, a.q.rows(), a.q.cols());
  check_fp32("attention_forward", "lse", a.lse, a.q.rows(), a.shape.num_heads);
  check_segments("attention_forward", a.segments, a.q.rows(), a.k.rows());
  run(stream, [owned = Owned(a)] {
    AttentionForward queued = owned.attention;
    queued.segments = owned.segments;
    cpu_attention_forward(queued);
  });
}

void CpuOps::attention_merge(Stream& stream, std::int64_t head_dim, ConstTensorView partial_out,
                             ConstTensorView partial_lse, TensorView out, TensorView lse) {
  check_fp32("attention_merge", "out", out, lse.rows(), lse.cols() * head_dim);
  check_fp32("attention_merge", "lse", lse, lse.rows(), lse.cols());
  check_fp32("attention_merge", "partial_out", partial_out, out.rows(), out.cols());
  check_fp32("attention_merge", "partial_lse", partial_lse, lse.rows(), lse.cols());
  run(stream, [=] { cpu_attention_merge(head_dim, partial_out, partial_lse, out, lse); });
}

void CpuOps::attention_delta(Stream& stream, std::int64_t head_dim, ConstTensorView out, ConstTensorView dout,
                             TensorView delta) {
  check_computable("attention_delta", "out", out);
  check_computable("attention_delta", "dout", dout);
  check_shape("attention_delta", "out", out, delta.rows(), delta.cols() * head_dim);
  check_shape("attention_delta", "dout", dout, out.rows(), out.cols());
  check_fp32("attention_delta", "delta", delta, delta.rows(), delta.cols());
  run(stream, [=] { cpu_attention_delta(head_dim, out, dout, delta); });
}

void CpuOps::attention_backward(Stream& stream, const AttentionBackward& attention) {
  const AttentionBackward& a = attention;
  check_inputs("attention_backward", a.shape, a.q, a.k, a.v);
  check_dtype("attention_backward", "dout", a.dout, a.q.dtype());
  check_shape("attention_backward", "dout", a.dout, a.q.rows(), a.q.cols());
  check_fp32("attention_backward", "lse", a.lse, a.q.rows(), a.shape.num_heads);
  check_fp32("attention_backward", "delta", a.delta, a.q.rows(), a.shape.num_heads);
  check_fp32("attention_backward", "dq", a.dq, a.q.rows(), a.q.cols());
  check_fp32("attention_backward", "dk", a.dk, a.k.rows(), a.k.cols());
  check_fp32("attention_backward", "dv", a.dv, a.v.rows(), a.v.cols());
  check_segments("attention_backward", a.segments, a.q.rows(), a.k.rows());
  run(stream, [owned = Owned(a)] {
    AttentionBackward queued = owned.attention;
    queued.segments = owned.segments;
    cpu_attention_backward(queued);
  });
}

}  // namespace skrull
