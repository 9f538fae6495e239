// Attention's forward: flash attention on the tensor cores (Dao 2023, "FlashAttention-2") for bf16 heads of 64 and 128.
// A block takes a tile of queries of one head and goes through the keys; a row's largest score and sum are kept in
// registers, in powers of two.

#include "device/cuda_stream.h"
#include "kernel/kernel.h"
#include "ops/attention_general.h"
#include "ops/attention_mma.h"
#include "ops/attention_segments.h"
#include "ops/cuda_ops.h"

namespace skrull {

namespace attention {

namespace {

constexpr int threads = 128;
constexpr int blocks_of_rows = 2;  ///< of 16, per warp: what a warp reads of the keys serves 32 rows
constexpr int warp_rows = blocks_of_rows * 16;
constexpr int queries = threads / 32 * warp_rows;
constexpr int keys = 64;

template <int kDim>
constexpr std::size_t shared_bytes = (queries + 2 * keys) * kDim * sizeof(bf16);

template <class Out>
struct ForwardArguments {
  SegmentTable table;
  Rows<const bf16> q, k, v;
  Rows<Out> out;
  Rows<float> lse;
  int heads, group;
  float exponent_scale;
};

/// Of the thread's rows: the largest score so far, in powers of two, and its part of the sum of weights.
struct RowState {
  float largest[blocks_of_rows][2];
  float sum[blocks_of_rows][2];
};

__device__ void store_pair(float* target, float first, float second) {
  *reinterpret_cast<float2*>(target) = make_float2(first, second);
}
__device__ void store_pair(bf16* target, float first, float second) {
  *reinterpret_cast<__nv_bfloat162*>(target) = __floats2bfloat162_rn(first, second);
}

/// Scores of keys that a row does not see become -infinity.
__device__ void mask_scores(Accumulator<blocks_of_rows, keys>& scores, const Segment& segment, int first_row,
                            int first_key) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
  for (int block = 0; block < blocks_of_rows; ++block) {
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const int visible = segment.visible_keys(first_row + block * 16 + e / 2 * 8 + lane / 4);
#pragma unroll
      for (int n = 0; n < keys / 8; ++n)
        if (first_key + n * 8 + lane % 4 * 2 + e % 2 >= visible) scores[block][n][e] = -INFINITY;
    }
  }
}

/// Scores become weights relative to the new largest score; sums and `result` are brought to it.
template <int kDim>
__device__ void online_softmax(Accumulator<blocks_of_rows, keys>& scores, RowState& state,
                               Accumulator<blocks_of_rows, kDim>& result, float exponent_scale) {
#pragma unroll
  for (int block = 0; block < blocks_of_rows; ++block) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float largest = -INFINITY;
#pragma unroll
      for (int n = 0; n < keys / 8; ++n)
        largest = fmaxf(largest, fmaxf(scores[block][n][2 * half], scores[block][n][2 * half + 1]));
      const float before = state.largest[block][half];
      const float now = fmaxf(before, row_max(largest) * exponent_scale);
      const float shift = now == -INFINITY ? 0 : now;  // no key seen so far
      const float correction = fast_exp2(before - shift);
      float sum = 0;
#pragma unroll
      for (int n = 0; n < keys / 8; ++n) {
#pragma unroll
        for (int e = 2 * half; e < 2 * half + 2; ++e) {
          float& weight = scores[block][n][e];
          weight = fast_exp2(fmaf(weight, exponent_scale, -shift));
          sum += weight;
        }
      }
      state.largest[block][half] = now;
      state.sum[block][half] = state.sum[block][half] * correction + sum;
#pragma unroll
      for (int n = 0; n < kDim / 8; ++n) {
        result[block][n][2 * half] *= correction;
        result[block][n][2 * half + 1] *= correction;
      }
    }
  }
}

template <class Out, int kDim>
__device__ void write_rows(const ForwardArguments<Out>& arguments, const Segment& segment, int head, int first_row,
                           const RowState& state, const Accumulator<blocks_of_rows, kDim>& result) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
  for (int block = 0; block < blocks_of_rows; ++block) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float sum = row_sum(state.sum[block][half]);
      const int row = first_row + block * 16 + half * 8 + lane / 4;
      if (row >= segment.q_len) continue;
      const std::int64_t place = std::int64_t{segment.q_begin} + row;
      const float inverse = sum > 0 ? 1 / sum : 0;
      Out* out = arguments.out.row(place) + std::int64_t{head} * kDim + lane % 4 * 2;
#pragma unroll
      for (int n = 0; n < kDim / 8; ++n)
        store_pair(out + n * 8, result[block][n][2 * half] * inverse, result[block][n][2 * half + 1] * inverse);
      if (lane % 4 == 0)
        arguments.lse.row(place)[head] = sum > 0 ? (state.largest[block][half] + log2f(sum)) * ln_2 : -INFINITY;
    }
  }
}

/// Keys and values have one buffer each: values arrive while scores are computed, the next keys while weights and
/// values are multiplied.
template <int kDim, class Out>
__global__ void __launch_bounds__(threads) forward_kernel(const __grid_constant__ ForwardArguments<Out> arguments) {
  DYNAMIC_SHARED_ARRAY(bf16, shared);
  bf16* q_tile = shared;
  bf16* k_tile = q_tile + queries * kDim;
  bf16* v_tile = k_tile + keys * kDim;

  const int head = static_cast<int>(blockIdx.x) % arguments.heads;
  const int tile = static_cast<int>(blockIdx.x) / arguments.heads;
  const Segment& segment = arguments.table.segment_of(tile);
  // The last rows, which see the most keys, come first.
  const int tiles = (segment.q_len + queries - 1) / queries;
  const int tile_row = (tiles - 1 - (tile - segment.first_tile)) * queries;
  const int warp_row = tile_row + static_cast<int>(threadIdx.x) / 32 * warp_rows;
  const int tile_keys = segment.visible_keys(min(tile_row + queries, segment.q_len) - 1);
  const int warp_keys = warp_row < segment.q_len ? segment.visible_keys(min(warp_row + warp_rows, segment.q_len) - 1) : 0;
  const int keys_of_all_rows = segment.visible_keys(warp_row);

  const std::int64_t kv_column = std::int64_t{head / arguments.group} * kDim;
  const auto load_keys = [&](bf16* into, const Rows<const bf16>& from, int key) {
    load_tile<keys, kDim, threads>(into, from, std::int64_t{segment.k_begin} + key, segment.k_len - key, kv_column);
    cp_async_commit();
  };
  Accumulator<blocks_of_rows, kDim> result = {};
  RowState state = {};
#pragma unroll
  for (int block = 0; block < blocks_of_rows; ++block)
    state.largest[block][0] = state.largest[block][1] = -INFINITY;

  if (tile_keys > 0) {
    load_tile<queries, kDim, threads>(q_tile, arguments.q, std::int64_t{segment.q_begin} + tile_row,
                                      segment.q_len - tile_row, std::int64_t{head} * kDim);
    load_keys(k_tile, arguments.k, 0);
  }
  for (int key = 0; key < tile_keys; key += keys) {
    const bool computes = key < warp_keys;
    cp_async_wait<0>();
    __syncthreads();  // the keys are there, nobody reads the values before any more
    load_keys(v_tile, arguments.v, key);
    Accumulator<blocks_of_rows, keys> scores = {};
    if (computes) multiply_rows<blocks_of_rows, keys, kDim>(scores, q_tile, warp_row - tile_row, k_tile);
    cp_async_wait<0>();
    __syncthreads();  // the values are there, nobody reads the keys any more
    if (key + keys < tile_keys) load_keys(k_tile, arguments.k, key + keys);
    if (!computes) continue;
    if (key + keys > keys_of_all_rows) mask_scores(scores, segment, warp_row, key);
    online_softmax<kDim>(scores, state, result, arguments.exponent_scale);
    multiply_weights<blocks_of_rows, keys, kDim>(result, scores, v_tile);
  }
  write_rows<Out, kDim>(arguments, segment, head, warp_row, state, result);
}

template <int kDim, class Out>
void forward(cudaStream_t stream, const AttentionForward& a) {
  for_each_table(a.segments, Side::queries, queries, [&](const SegmentTable& table) {
    const ForwardArguments<Out> arguments{table,
                                          rows_of<bf16>(a.q),
                                          rows_of<bf16>(a.k),
                                          rows_of<bf16>(a.v),
                                          rows_of<Out>(a.out),
                                          rows_of<float>(a.lse),
                                          static_cast<int>(a.shape.num_heads),
                                          static_cast<int>(a.shape.num_heads / a.shape.num_kv_heads),
                                          exponent_scale(a.shape.scale)};
    launch(forward_kernel<kDim, Out>, grid_of(table, a.shape.num_heads), dim3(threads), shared_bytes<kDim>, stream,
           arguments);
  });
}

}  // namespace

}  // namespace attention

void CudaOps::attention_forward(Stream& stream, const AttentionForward& attention) {
  check_attention_forward(attention);
  const AttentionShape& shape = attention.shape;
  const bool fast = attention::fast_inputs(shape, attention.q, attention.k, attention.v) &&
                    attention::rows_of_pairs(attention.out);
  if (!fast) return attention::general_forward(cuda_stream(stream), attention);
  const bool to_fp32 = attention.out.dtype() == DType::float32;
  const auto forward = shape.head_dim == 64 ? (to_fp32 ? attention::forward<64, float> : attention::forward<64, bf16>)
                                            : (to_fp32 ? attention::forward<128, float> : attention::forward<128, bf16>);
  forward(cuda_stream(stream), attention);
}

}  // namespace skrull
