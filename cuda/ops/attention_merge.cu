// Joining partial results of attention, and delta = sum of out * dout, which its backward starts from. Eight threads
// share a head of a row; each takes eight neighbouring columns at a time where rows are aligned.

#include "kernel/kernel.h"
#include "kernel/vector_access.h"
#include "ops/attention_segments.h"
#include "ops/native_attention.h"

namespace skrull::attention {

namespace {

constexpr int threads = 256;
constexpr int threads_per_head = 8;
constexpr int columns = 8;  ///< of a piece that a thread takes at once

/// Heads of rows, numbered through; a block takes threads / threads_per_head of them.
struct Heads {
  std::int64_t rows;
  int heads;
  int head_dim;

  __device__ std::int64_t mine() const { return (std::int64_t{blockIdx.x} * threads + threadIdx.x) / threads_per_head; }
  dim3 grid() const {
    constexpr int per_block = threads / threads_per_head;
    const std::int64_t blocks = (rows * heads + per_block - 1) / per_block;
    require(blocks <= 0x7FFFFFFF, "attention: {} rows of {} heads are more than a grid holds", rows, heads);
    return dim3(static_cast<unsigned>(blocks));
  }
};

template <class Out, class Dout, bool kAligned>
__global__ void __launch_bounds__(threads)
    delta_kernel(const Heads heads, const Rows<const Out> out, const Rows<const Dout> dout, const Rows<float> delta) {
  const std::int64_t mine = heads.mine();
  const bool inside = mine < heads.rows * heads.heads;
  const std::int64_t row = mine / heads.heads;
  const std::int64_t head = mine % heads.heads;
  const int member = static_cast<int>(threadIdx.x) % threads_per_head;
  float sum = 0;
  if (inside) {
    const Out* x = out.row(row) + head * heads.head_dim;
    const Dout* y = dout.row(row) + head * heads.head_dim;
    if constexpr (kAligned) {
      for (int first = member * columns; first < heads.head_dim; first += threads_per_head * columns) {
        float left[columns];
        float right[columns];
        load(x + first, left);
        load(y + first, right);
#pragma unroll
        for (int i = 0; i < columns; ++i) sum = fmaf(left[i], right[i], sum);
      }
    } else {
      for (int i = member; i < heads.head_dim; i += threads_per_head) sum = fmaf(to_float(x[i]), to_float(y[i]), sum);
    }
  }
#pragma unroll
  for (int distance = threads_per_head / 2; distance > 0; distance /= 2)
    sum += __shfl_xor_sync(0xFFFFFFFFU, sum, distance);
  if (inside && member == 0) delta.row(row)[head] = sum;
}

/// Shifted by the larger log-sum-exp: one weight is 1 before the division, the other at most 1; -infinity weighs 0.
template <bool kAligned>
__global__ void __launch_bounds__(threads)
    merge_kernel(const Heads heads, const Rows<const float> partial_out, const Rows<const float> partial_lse,
                 const Rows<float> out, const Rows<float> lse) {
  const std::int64_t mine = heads.mine();
  const bool inside = mine < heads.rows * heads.heads;
  const std::int64_t row = mine / heads.heads;
  const std::int64_t head = mine % heads.heads;
  const int member = static_cast<int>(threadIdx.x) % threads_per_head;
  const float a = inside ? lse.row(row)[head] : -INFINITY;
  const float b = inside ? partial_lse.row(row)[head] : -INFINITY;
  __syncwarp();  // all of a head have read its log-sum-exp before one writes it
  if (b == -INFINITY) return;
  const float shift = fmaxf(a, b);
  const float weight_a = expf(a - shift);
  const float weight_b = expf(b - shift);
  const float total = weight_a + weight_b;
  const float keep = weight_a / total;
  const float take = weight_b / total;
  if (member == 0) lse.row(row)[head] = shift + logf(total);
  const float* from = partial_out.row(row) + head * heads.head_dim;
  float* into = out.row(row) + head * heads.head_dim;
  if constexpr (kAligned) {
    for (int first = member * columns; first < heads.head_dim; first += threads_per_head * columns) {
      float partial[columns];
      float joined[columns];
      load(from + first, partial);
      load(into + first, joined);
#pragma unroll
      for (int i = 0; i < columns; ++i) joined[i] = fmaf(partial[i], take, joined[i] * keep);
      store(into + first, joined);
    }
  } else {
    for (int i = member; i < heads.head_dim; i += threads_per_head) into[i] = fmaf(from[i], take, into[i] * keep);
  }
}

Heads heads_of(const ConstTensorView& per_head, std::int64_t head_dim) {
  return {per_head.rows(), static_cast<int>(per_head.cols()), static_cast<int>(head_dim)};
}

bool aligned(std::int64_t head_dim, const ConstTensorView& view) {
  return head_dim % columns == 0 && rows_of_16_bytes(view);
}

}  // namespace

void delta(cudaStream_t stream, std::int64_t head_dim, ConstTensorView out, ConstTensorView dout, TensorView result) {
  check_attention_delta(head_dim, out, dout, result);
  const Heads heads = heads_of(result, head_dim);
  const auto queue = [&]<class Out, class Dout>(std::type_identity<Out>, std::type_identity<Dout>) {
    const auto kernel = aligned(head_dim, out) && aligned(head_dim, dout) ? delta_kernel<Out, Dout, true>
                                                                          : delta_kernel<Out, Dout, false>;
    launch(kernel, heads.grid(), dim3(threads), 0, stream, heads, rows_of<Out>(out), rows_of<Dout>(dout),
           rows_of<float>(result));
  };
  const auto with_out = [&](auto out_element) {
    if (dout.dtype() == DType::float32) return queue(out_element, std::type_identity<float>{});
    queue(out_element, std::type_identity<bf16>{});
  };
  if (out.dtype() == DType::float32) return with_out(std::type_identity<float>{});
  with_out(std::type_identity<bf16>{});
}

void merge(cudaStream_t stream, std::int64_t head_dim, ConstTensorView partial_out, ConstTensorView partial_lse,
           TensorView out, TensorView lse) {
  check_attention_merge(head_dim, partial_out, partial_lse, out, lse);
  const Heads heads = heads_of(lse, head_dim);
  const auto kernel =
      aligned(head_dim, partial_out) && aligned(head_dim, out) ? merge_kernel<true> : merge_kernel<false>;
  launch(kernel, heads.grid(), dim3(threads), 0, stream, heads, rows_of<float>(partial_out),
         rows_of<float>(partial_lse), rows_of<float>(out), rows_of<float>(lse));
}

}  // namespace skrull::attention
