// Attention's forward: flash attention on the tensor cores (Dao 2023, "FlashAttention-2") for bf16 heads of 64 and 128.
// A block takes a tile of queries of one head and goes through the keys; a row's largest score and sum are kept in
// registers, in powers of two.

#include "kernel/kernel.h"
#include "ops/attention_general.h"
#include "ops/attention_mma.h"
#include "ops/attention_segments.h"
#include "ops/native_attention.h"

namespace skrull::attention {

namespace {

constexpr int threads = 128;
constexpr int blocks_of_rows = 2;  ///< of 16, per warp: what a warp reads of the keys serves 32 rows
constexpr int warp_rows = blocks_of_rows * 16;
constexpr int queries = threads / 32 * warp_rows;
template <int kDim>
constexpr int keys = 4096 / kDim;  ///< as many as leave room for the sums in registers
template <int kDim>
constexpr std::size_t shared_bytes = (queries + 4 * keys<kDim>)*kDim * sizeof(bf16);

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

/// Scores become weights relative to the new largest score; sums and `result` are brought to it.
template <int kDim, int kKeys>
__device__ void online_softmax(Accumulator<blocks_of_rows, kKeys>& scores, RowState& state,
                               Accumulator<blocks_of_rows, kDim>& result, float exponent_scale) {
#pragma unroll
  for (int block = 0; block < blocks_of_rows; ++block) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float largest = -INFINITY;
#pragma unroll
      for (int n = 0; n < kKeys / 8; ++n)
        largest = fmaxf(largest, fmaxf(scores[block][n][2 * half], scores[block][n][2 * half + 1]));
      const float before = state.largest[block][half];
      const float now = fmaxf(before, row_max(largest) * exponent_scale);
      const float shift = now == -INFINITY ? 0 : now;  // no key seen so far
      float sum = 0;
#pragma unroll
      for (int n = 0; n < kKeys / 8; ++n) {
#pragma unroll
        for (int e = 2 * half; e < 2 * half + 2; ++e) {
          float& weight = scores[block][n][e];
          weight = fast_exp2(fmaf(weight, exponent_scale, -shift));
          sum += weight;
        }
      }
      // Most tiles hold no larger score than was seen before.
      if (__any_sync(0xFFFFFFFFU, now > before)) {
        const float correction = fast_exp2(before - shift);
        state.sum[block][half] *= correction;
#pragma unroll
        for (int n = 0; n < kDim / 8; ++n) {
          result[block][n][2 * half] *= correction;
          result[block][n][2 * half + 1] *= correction;
        }
      }
      state.largest[block][half] = now;
      state.sum[block][half] += sum;
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
      const int place = segment.q_begin + row;
      const float inverse = sum > 0 ? 1 / sum : 0;
      Out* out = arguments.out.row(place) + head * kDim + lane % 4 * 2;
#pragma unroll
      for (int n = 0; n < kDim / 8; ++n)
        store_pair(out + n * 8, result[block][n][2 * half] * inverse, result[block][n][2 * half + 1] * inverse);
      if (lane % 4 == 0)
        arguments.lse.row(place)[head] = sum > 0 ? (state.largest[block][half] + log2f(sum)) * ln_2 : -INFINITY;
    }
  }
}

template <int kDim, class Out>
__global__ void __launch_bounds__(threads) forward_kernel(const __grid_constant__ ForwardArguments<Out> arguments) {
  constexpr int tile_keys = keys<kDim>;
  constexpr int tile_elements = tile_keys * kDim;
  DYNAMIC_SHARED_ARRAY(bf16, shared);
  bf16* q_tile = shared;
  bf16* k_tiles = q_tile + queries * kDim;  // two of each, one is filled while the other is used
  bf16* v_tiles = k_tiles + 2 * tile_elements;

  const int head = static_cast<int>(blockIdx.x) % arguments.heads;
  const int tile = static_cast<int>(blockIdx.x) / arguments.heads;
  const Segment& segment = arguments.table.segment_of(tile);
  // The last rows, which see the most keys, come first.
  const int tiles = (segment.q_len + queries - 1) / queries;
  const int tile_row = (tiles - 1 - (tile - segment.first_tile)) * queries;
  const int warp_row = tile_row + static_cast<int>(threadIdx.x) / 32 * warp_rows;
  const int keys_of_tile = segment.keys_of_rows(tile_row, queries);
  const int keys_of_warp = segment.keys_of_rows(warp_row, warp_rows);
  const int keys_of_all_rows = segment.visible_keys(warp_row);

  const int kv_column = head / arguments.group * kDim;
  const auto load_keys = [&](int key, int buffer) {
    const int first = segment.k_begin + key;
    const int valid = segment.k_len - key;
    load_tile<tile_keys, kDim, threads>(k_tiles + buffer * tile_elements, arguments.k, first, valid, kv_column);
    load_tile<tile_keys, kDim, threads>(v_tiles + buffer * tile_elements, arguments.v, first, valid, kv_column);
    cp_async_commit();
  };
  Accumulator<blocks_of_rows, kDim> result = {};
  RowState state = {};
#pragma unroll
  for (int block = 0; block < blocks_of_rows; ++block) state.largest[block][0] = state.largest[block][1] = -INFINITY;

  if (keys_of_tile > 0) {
    load_tile<queries, kDim, threads>(q_tile, arguments.q, segment.q_begin + tile_row, segment.q_len - tile_row,
                                      head * kDim);
    load_keys(0, 0);
  }
  const SharedRows<blocks_of_rows, kDim> q_rows(q_tile, warp_row - tile_row);
  for (int key = 0; key < keys_of_tile; key += tile_keys) {
    const int now = key / tile_keys % 2;
    cp_async_wait<0>();
    __syncthreads();  // these keys and values are there, nobody uses those before any more
    if (key + tile_keys < keys_of_tile) load_keys(key + tile_keys, 1 - now);
    if (key >= keys_of_warp) continue;
    Accumulator<blocks_of_rows, tile_keys> scores = {};
    multiply_rows<blocks_of_rows, tile_keys>(scores, q_rows, k_tiles + now * tile_elements);
    if (key + tile_keys > keys_of_all_rows) mask_scores<blocks_of_rows, tile_keys>(scores, segment, warp_row, key);
    online_softmax<kDim, tile_keys>(scores, state, result, arguments.exponent_scale);
    multiply_weights<blocks_of_rows, tile_keys, kDim>(result, scores, v_tiles + now * tile_elements);
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

void native_forward(cudaStream_t stream, const AttentionForward& attention) {
  check_attention_forward(attention);
  const AttentionShape& shape = attention.shape;
  if (!fast_inputs(shape, attention.q, attention.k, attention.v) || !rows_of_pairs(attention.out))
    return general_forward(stream, attention);
  const bool to_fp32 = attention.out.dtype() == DType::float32;
  const auto forward_64 = to_fp32 ? forward<64, float> : forward<64, bf16>;
  const auto forward_128 = to_fp32 ? forward<128, float> : forward<128, bf16>;
  (shape.head_dim == 64 ? forward_64 : forward_128)(stream, attention);
}

}  // namespace skrull::attention
