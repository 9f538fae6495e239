// Attention by fused multiply-adds in fp32: tiles of 32 rows that a block owns against tiles of 32 rows of the other
// side. A warp owns 8 rows; its lane l computes their products with row l of the other side, and holds columns l, l +
// 32,
// ... of the sums over them. The formulas are those of attention_forward.cu and attention_backward.cu.

#include <type_traits>

#include "kernel/vector_access.h"
#include "ops/attention_general.h"
#include "ops/attention_segments.h"
#include "skrull/device/operands.h"

namespace skrull::attention {

namespace {

constexpr int threads = 128;
constexpr int tile_rows = 32;  ///< of either side; a lane for each row of the other side
constexpr int warp_rows = tile_rows / (threads / 32);
constexpr int largest_head = 256;

/// Floats from row to row of a tile: whole 16-byte pieces, an odd number of them, so that lanes which read different
/// rows meet different banks.
__host__ __device__ inline int tile_stride(int head_dim) {
  return ((head_dim + 3) / 4 | 1) * 4;
}
std::size_t tile_bytes(int head_dim, int tiles) {
  return static_cast<std::size_t>(tiles * tile_rows * tile_stride(head_dim)) * sizeof(float);
}

__device__ void store(float* target, float x) {
  *target = x;
}
__device__ void store(bf16* target, float x) {
  *target = __float2bfloat16(x);
}

template <class T>
struct GeneralArguments {
  SegmentTable table;
  Rows<const T> q, k, v, dout;
  Rows<const float> lse, delta;
  Rows<float> dq, dk, dv;
  int heads, kv_heads, head_dim;
  float scale, exponent_scale;
};

/// Copies a tile of one head's rows; rows behind the first `valid` and columns behind the head are 0.
template <class T>
__device__ void load_rows(float* tile, const Rows<const T>& source, std::int64_t first, int valid, int head,
                          int head_dim) {
  const int stride = tile_stride(head_dim);
#pragma unroll 1
  for (int i = static_cast<int>(threadIdx.x); i < tile_rows * stride; i += threads) {
    const int row = i / stride;
    const int column = i % stride;
    const bool inside = row < valid && column < head_dim;
    tile[i] = inside ? to_float(source.row(first + row)[std::int64_t{head} * head_dim + column]) : 0;
  }
}

/// products[r] = row r of the warp's rows of `owned` . the lane's row of `other`.
__device__ void multiply_rows(const float* owned, const float* other, int head_dim, float (&products)[warp_rows]) {
  const int stride = tile_stride(head_dim);
  const float4* left = reinterpret_cast<const float4*>(owned + threadIdx.x / 32 * warp_rows * stride);
  const float4* right = reinterpret_cast<const float4*>(other + threadIdx.x % 32 * stride);
#pragma unroll
  for (int r = 0; r < warp_rows; ++r) products[r] = 0;
#pragma unroll 2
  for (int i = 0; i < (head_dim + 3) / 4; ++i) {
    const float4 y = right[i];
#pragma unroll
    for (int r = 0; r < warp_rows; ++r) {
      const float4 x = left[r * (stride / 4) + i];
      products[r] = fmaf(x.x, y.x, fmaf(x.y, y.y, fmaf(x.z, y.z, fmaf(x.w, y.w, products[r]))));
    }
  }
}

/// Sums of a warp: its rows, and columns l + 32 c of lane l.
template <int kColumns>
using RowSums = float[warp_rows][kColumns];

/// sums += weights x the rows of `other`; weights[r] is row r's weight of the lane's row. `exchange` are the warp's
/// floats in shared memory for them.
template <int kColumns>
__device__ void multiply_weights(RowSums<kColumns>& sums, const float (&weights)[warp_rows], float* exchange,
                                 const float* other, int head_dim) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  __syncwarp();  // what was in it has been read
#pragma unroll
  for (int r = 0; r < warp_rows; ++r) exchange[lane * warp_rows + r] = weights[r];
  __syncwarp();
  const int stride = tile_stride(head_dim);
#pragma unroll 4
  for (int row = 0; row < tile_rows; ++row) {
    float values[kColumns];
#pragma unroll
    for (int c = 0; c < kColumns; ++c) values[c] = lane + 32 * c < head_dim ? other[row * stride + lane + 32 * c] : 0;
#pragma unroll
    for (int r = 0; r < warp_rows; ++r) {
      const float weight = exchange[row * warp_rows + r];
#pragma unroll
      for (int c = 0; c < kColumns; ++c) sums[r][c] = fmaf(weight, values[c], sums[r][c]);
    }
  }
}

template <int kColumns>
__device__ void add_rows(const Rows<float>& gradient, std::int64_t first, int valid, int head, int head_dim,
                         float factor, const RowSums<kColumns>& sums) {
  const int warp_row = static_cast<int>(threadIdx.x) / 32 * warp_rows;
#pragma unroll
  for (int r = 0; r < warp_rows; ++r) {
    if (warp_row + r >= valid) continue;
    float* target = gradient.row(first + warp_row + r) + std::int64_t{head} * head_dim;
#pragma unroll
    for (int c = 0; c < kColumns; ++c) {
      const int column = static_cast<int>(threadIdx.x) % 32 + 32 * c;
      if (column < head_dim) target[column] += factor * sums[r][c];
    }
  }
}

__device__ inline float warp_max(float x) {
  for (int distance = 16; distance > 0; distance /= 2) x = fmaxf(x, __shfl_xor_sync(0xFFFFFFFFU, x, distance));
  return x;
}
__device__ inline float warp_sum(float x) {
  for (int distance = 16; distance > 0; distance /= 2) x += __shfl_xor_sync(0xFFFFFFFFU, x, distance);
  return x;
}

/// The tile of queries of a block; the last rows, which see the most keys, come first.
struct QueryTile {
  const Segment& segment;
  int head, row, rows, keys;  ///< keys: that any of its rows sees

  __device__ QueryTile(const SegmentTable& table, int heads)
      : segment(table.segment_of(static_cast<int>(blockIdx.x) / heads)),
        head(static_cast<int>(blockIdx.x) % heads),
        row(((segment.q_len - 1) / tile_rows - (static_cast<int>(blockIdx.x) / heads - segment.first_tile)) *
            tile_rows),
        rows(min(segment.q_len - row, tile_rows)),
        keys(segment.visible_keys(row + rows - 1)) {}

  __device__ std::int64_t first() const { return std::int64_t{segment.q_begin} + row; }
};

template <class T, class Out, int kColumns>
__global__ void __launch_bounds__(threads) general_forward_kernel(const __grid_constant__ GeneralArguments<T> arguments,
                                                                  const Rows<Out> out, const Rows<float> lse) {
  SHARED_ARRAY(float, exchange, tile_rows* tile_rows);
  DYNAMIC_SHARED_ARRAY(float, shared);
  const int head_dim = arguments.head_dim;
  const int tile_floats = tile_rows * tile_stride(head_dim);
  float* q_tile = shared;
  float* k_tile = q_tile + tile_floats;
  float* v_tile = k_tile + tile_floats;
  const QueryTile tile(arguments.table, arguments.heads);
  const Segment& segment = tile.segment;
  const int kv_head = tile.head / (arguments.heads / arguments.kv_heads);
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int warp_row = static_cast<int>(threadIdx.x) / 32 * warp_rows;

  RowSums<kColumns> result = {};
  float largest[warp_rows];
  float sum[warp_rows] = {};
#pragma unroll
  for (int r = 0; r < warp_rows; ++r) largest[r] = -INFINITY;
  load_rows(q_tile, arguments.q, tile.first(), tile.rows, tile.head, head_dim);
  for (int key = 0; key < tile.keys; key += tile_rows) {
    const std::int64_t first_key = std::int64_t{segment.k_begin} + key;
    __syncthreads();
    load_rows(k_tile, arguments.k, first_key, segment.k_len - key, kv_head, head_dim);
    load_rows(v_tile, arguments.v, first_key, segment.k_len - key, kv_head, head_dim);
    __syncthreads();
    float weights[warp_rows];
    multiply_rows(q_tile, k_tile, head_dim, weights);
#pragma unroll
    for (int r = 0; r < warp_rows; ++r) {
      const bool hidden = key + lane >= segment.visible_keys(tile.row + warp_row + r);
      const float score = hidden ? -INFINITY : weights[r] * arguments.exponent_scale;
      const float now = fmaxf(largest[r], warp_max(score));
      const float shift = now == -INFINITY ? 0 : now;  // no key seen so far
      const float correction = exp2f(largest[r] - shift);
      weights[r] = exp2f(score - shift);
      largest[r] = now;
      sum[r] = sum[r] * correction + weights[r];
#pragma unroll
      for (int c = 0; c < kColumns; ++c) result[r][c] *= correction;
    }
    multiply_weights<kColumns>(result, weights, exchange + warp_row * tile_rows, v_tile, head_dim);
  }
#pragma unroll
  for (int r = 0; r < warp_rows; ++r) {
    const float total = warp_sum(sum[r]);
    if (warp_row + r >= tile.rows) continue;
    const std::int64_t place = tile.first() + warp_row + r;
    const float inverse = total > 0 ? 1 / total : 0;
#pragma unroll
    for (int c = 0; c < kColumns; ++c) {
      const int column = lane + 32 * c;
      if (column < head_dim)
        store(out.row(place) + std::int64_t{tile.head} * head_dim + column, result[r][c] * inverse);
    }
    if (lane == 0) lse.row(place)[tile.head] = total > 0 ? (largest[r] + log2f(total)) * ln_2 : -INFINITY;
  }
}

template <class T, int kColumns>
__global__ void __launch_bounds__(threads)
    general_query_gradients_kernel(const __grid_constant__ GeneralArguments<T> arguments) {
  SHARED_ARRAY(float, exchange, tile_rows* tile_rows);
  DYNAMIC_SHARED_ARRAY(float, shared);
  const int head_dim = arguments.head_dim;
  const int tile_floats = tile_rows * tile_stride(head_dim);
  float* q_tile = shared;
  float* dout_tile = q_tile + tile_floats;
  float* k_tile = dout_tile + tile_floats;
  float* v_tile = k_tile + tile_floats;
  const QueryTile tile(arguments.table, arguments.heads);
  if (tile.keys == 0) return;
  const Segment& segment = tile.segment;
  const int kv_head = tile.head / (arguments.heads / arguments.kv_heads);
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int warp_row = static_cast<int>(threadIdx.x) / 32 * warp_rows;

  float shift[warp_rows];
  float delta[warp_rows];
#pragma unroll
  for (int r = 0; r < warp_rows; ++r) {
    const bool inside = warp_row + r < tile.rows;
    const std::int64_t place = tile.first() + warp_row + r;
    shift[r] = inside ? exponent_shift(arguments.lse.row(place)[tile.head]) : INFINITY;
    delta[r] = inside ? arguments.delta.row(place)[tile.head] : 0;
  }
  RowSums<kColumns> sums = {};
  load_rows(q_tile, arguments.q, tile.first(), tile.rows, tile.head, head_dim);
  load_rows(dout_tile, arguments.dout, tile.first(), tile.rows, tile.head, head_dim);
  for (int key = 0; key < tile.keys; key += tile_rows) {
    const std::int64_t first_key = std::int64_t{segment.k_begin} + key;
    __syncthreads();
    load_rows(k_tile, arguments.k, first_key, segment.k_len - key, kv_head, head_dim);
    load_rows(v_tile, arguments.v, first_key, segment.k_len - key, kv_head, head_dim);
    __syncthreads();
    float weights[warp_rows];
    float dweights[warp_rows];
    multiply_rows(q_tile, k_tile, head_dim, weights);
    multiply_rows(dout_tile, v_tile, head_dim, dweights);
#pragma unroll
    for (int r = 0; r < warp_rows; ++r) {
      const bool hidden = key + lane >= segment.visible_keys(tile.row + warp_row + r);
      const float weight = exp2f(weights[r] * arguments.exponent_scale - shift[r]);
      weights[r] = hidden ? 0 : weight * (dweights[r] - delta[r]);
    }
    multiply_weights<kColumns>(sums, weights, exchange + warp_row * tile_rows, k_tile, head_dim);
  }
  add_rows<kColumns>(arguments.dq, tile.first(), tile.rows, tile.head, head_dim, arguments.scale, sums);
}

template <class T, int kColumns>
__global__ void __launch_bounds__(threads)
    general_key_gradients_kernel(const __grid_constant__ GeneralArguments<T> arguments) {
  SHARED_ARRAY(float, exchange, tile_rows* tile_rows);
  DYNAMIC_SHARED_ARRAY(float, shared);
  const int head_dim = arguments.head_dim;
  const int tile_floats = tile_rows * tile_stride(head_dim);
  float* k_tile = shared;
  float* v_tile = k_tile + tile_floats;
  float* q_tile = v_tile + tile_floats;
  float* dout_tile = q_tile + tile_floats;
  const int kv_head = static_cast<int>(blockIdx.x) % arguments.kv_heads;
  const int tile = static_cast<int>(blockIdx.x) / arguments.kv_heads;
  const Segment& segment = arguments.table.segment_of(tile);
  const int tile_key = (tile - segment.first_tile) * tile_rows;
  const int first_query = max(0, tile_key - segment.keys_of_first_query + 1);  // the first to see the tile's first key
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int warp_row = static_cast<int>(threadIdx.x) / 32 * warp_rows;
  const int group = arguments.heads / arguments.kv_heads;
  const std::int64_t first_key = std::int64_t{segment.k_begin} + tile_key;
  const int valid_keys = segment.k_len - tile_key;

  RowSums<kColumns> dk = {};
  RowSums<kColumns> dv = {};
  load_rows(k_tile, arguments.k, first_key, valid_keys, kv_head, head_dim);
  load_rows(v_tile, arguments.v, first_key, valid_keys, kv_head, head_dim);
  for (int head = kv_head * group; head < (kv_head + 1) * group; ++head) {
    for (int row = first_query / tile_rows * tile_rows; row < segment.q_len; row += tile_rows) {
      const std::int64_t first = std::int64_t{segment.q_begin} + row;
      __syncthreads();
      load_rows(q_tile, arguments.q, first, segment.q_len - row, head, head_dim);
      load_rows(dout_tile, arguments.dout, first, segment.q_len - row, head, head_dim);
      __syncthreads();
      const bool inside = row + lane < segment.q_len;
      const float shift = inside ? exponent_shift(arguments.lse.row(first + lane)[head]) : INFINITY;
      const float delta = inside ? arguments.delta.row(first + lane)[head] : 0;
      const int visible = segment.visible_keys(row + lane);
      float weights[warp_rows];
      float dweights[warp_rows];
      multiply_rows(k_tile, q_tile, head_dim, weights);
      multiply_rows(v_tile, dout_tile, head_dim, dweights);
#pragma unroll
      for (int r = 0; r < warp_rows; ++r) {
        const bool hidden = tile_key + warp_row + r >= visible;
        weights[r] = hidden ? 0 : exp2f(weights[r] * arguments.exponent_scale - shift);
        dweights[r] = weights[r] * (dweights[r] - delta);
      }
      multiply_weights<kColumns>(dv, weights, exchange + warp_row * tile_rows, dout_tile, head_dim);
      multiply_weights<kColumns>(dk, dweights, exchange + warp_row * tile_rows, q_tile, head_dim);
    }
  }
  add_rows<kColumns>(arguments.dk, first_key, valid_keys, kv_head, head_dim, arguments.scale, dk);
  add_rows<kColumns>(arguments.dv, first_key, valid_keys, kv_head, head_dim, 1, dv);
}

template <class T>
GeneralArguments<T> arguments_of(const AttentionShape& shape, const ConstTensorView& q, const ConstTensorView& k,
                                 const ConstTensorView& v) {
  require(shape.head_dim <= largest_head, "attention: heads of {}, the CUDA kernels take sizes up to {}",
          shape.head_dim, largest_head);
  GeneralArguments<T> arguments{};
  arguments.q = rows_of<T>(q);
  arguments.k = rows_of<T>(k);
  arguments.v = rows_of<T>(v);
  arguments.heads = static_cast<int>(shape.num_heads);
  arguments.kv_heads = static_cast<int>(shape.num_kv_heads);
  arguments.head_dim = static_cast<int>(shape.head_dim);
  arguments.scale = shape.scale;
  arguments.exponent_scale = exponent_scale(shape.scale);
  return arguments;
}

/// Calls fn(number of columns that a lane holds) as a compile-time constant.
template <class Fn>
void with_columns(std::int64_t head_dim, Fn&& fn) {
  if (head_dim <= 64) return fn(std::integral_constant<int, 2>{});
  if (head_dim <= 128) return fn(std::integral_constant<int, 4>{});
  fn(std::integral_constant<int, largest_head / 32>{});
}

template <class T, class Out>
void forward(cudaStream_t stream, const AttentionForward& a) {
  GeneralArguments<T> arguments = arguments_of<T>(a.shape, a.q, a.k, a.v);
  const std::size_t shared = tile_bytes(arguments.head_dim, 3);
  with_columns(a.shape.head_dim, [&](auto columns) {
    for_each_table(a.segments, Side::queries, tile_rows, [&](const SegmentTable& table) {
      arguments.table = table;
      launch(general_forward_kernel<T, Out, columns()>, grid_of(table, a.shape.num_heads), dim3(threads), shared,
             stream, arguments, rows_of<Out>(a.out), rows_of<float>(a.lse));
    });
  });
}

template <class T>
void backward(cudaStream_t stream, const AttentionBackward& a) {
  GeneralArguments<T> arguments = arguments_of<T>(a.shape, a.q, a.k, a.v);
  arguments.dout = rows_of<T>(a.dout);
  arguments.lse = rows_of<float>(a.lse);
  arguments.delta = rows_of<float>(a.delta);
  arguments.dq = rows_of<float>(a.dq);
  arguments.dk = rows_of<float>(a.dk);
  arguments.dv = rows_of<float>(a.dv);
  const std::size_t shared = tile_bytes(arguments.head_dim, 4);
  with_columns(a.shape.head_dim, [&](auto columns) {
    for_each_table(a.segments, Side::keys, tile_rows, [&](const SegmentTable& table) {
      arguments.table = table;
      launch(general_key_gradients_kernel<T, columns()>, grid_of(table, a.shape.num_kv_heads), dim3(threads), shared,
             stream, arguments);
    });
    for_each_table(a.segments, Side::queries, tile_rows, [&](const SegmentTable& table) {
      arguments.table = table;
      launch(general_query_gradients_kernel<T, columns()>, grid_of(table, a.shape.num_heads), dim3(threads), shared,
             stream, arguments);
    });
  });
}

}  // namespace

void general_forward(cudaStream_t stream, const AttentionForward& attention) {
  if (attention.q.dtype() == DType::float32) return forward<float, float>(stream, attention);
  if (attention.out.dtype() == DType::float32) return forward<bf16, float>(stream, attention);
  forward<bf16, bf16>(stream, attention);
}

void general_backward(cudaStream_t stream, const AttentionBackward& attention) {
  const bool fp32 = attention.q.dtype() == DType::float32;
  (fp32 ? backward<float> : backward<bf16>)(stream, attention);
}

}  // namespace skrull::attention
