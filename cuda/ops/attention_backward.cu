// Attention's backward on the tensor cores, for bf16 heads of 64 and 128: P = exp(scale Q K^T - log-sum-exp),
// dS = P (dO V^T - delta); dV = P^T dO, dK = scale dS^T Q, dQ = scale dS K (Dao 2023, "FlashAttention-2").
//
// Two kernels, so that every sum has one owner and one order, without atomics: one whose blocks own a tile of keys and
// go through the query heads of the group and their queries, one whose blocks own a tile of queries and go through the
// keys. What a block owns are the rows of all its products, so weights pass from one product to the next in registers.

#include <type_traits>

#include "kernel/kernel.h"
#include "ops/attention_general.h"
#include "ops/attention_mma.h"
#include "ops/attention_segments.h"
#include "ops/native_attention.h"

namespace skrull::attention {

namespace {

struct BackwardArguments {
  SegmentTable table;
  Rows<const bf16> q, k, v, dout;
  Rows<const float> lse, delta;
  Rows<float> dq, dk, dv;
  int heads, kv_heads;
  float scale, exponent_scale;
};

/// 128 rows are owned by a block, 32 of the other side are in shared memory at once. Reading that is what takes
/// longest, so registers are filled with what saves reads: sums of a warp's rows, weights, and where it owns but 16
/// rows, those.
template <int kDim>
struct KeyTiling {
  static constexpr int blocks = kDim == 64 ? 2 : 1;  ///< of 16 rows that a warp owns, with two sums of kDim columns
  static constexpr int keys = 128;
  static constexpr int threads = keys / (16 * blocks) * 32;
  static constexpr int queries = 32;
  static constexpr int queries_at_once = kDim == 64 ? 32 : 16;  ///< whose weights and their gradients fit the registers
  static constexpr std::size_t shared_bytes =
      (2 * keys + 4 * queries) * kDim * sizeof(bf16) + 2 * queries * sizeof(float2);
};

template <int kDim>
struct QueryTiling {
  static constexpr int blocks = 2;
  static constexpr int queries = 128;
  static constexpr int threads = queries / (16 * blocks) * 32;
  static constexpr int keys = 32;
  static constexpr std::size_t shared_bytes = (2 * queries + 4 * keys) * kDim * sizeof(bf16) + queries * sizeof(float2);
};

/// A warp's rows of its block's tiles.
template <int kDim>
using KeyRows = std::conditional_t<kDim == 64, SharedRows<KeyTiling<kDim>::blocks, kDim>,
                                   RowsInRegisters<KeyTiling<kDim>::blocks, kDim>>;
template <int kDim>
using QueryRows = SharedRows<QueryTiling<kDim>::blocks, kDim>;

/// Shift and delta of a query row.
__device__ float2 row_statistics(const BackwardArguments& arguments, int row, int head) {
  return make_float2(exponent_shift(arguments.lse.row(row)[head]), arguments.delta.row(row)[head]);
}

// --- gradients of keys and values ---

/// Goes through the tiles of queries that see a tile of keys: from `first_row` on, for one query head of the group
/// after the other.
template <int kDim>
struct QueryTiles {
  using Tiling = KeyTiling<kDim>;
  const BackwardArguments& arguments;
  const Segment& segment;
  int first_row, row, head, end_head;

  __device__ bool ended() const { return head == end_head; }
  __device__ void advance() {
    row += Tiling::queries;
    if (row < segment.q_len) return;
    row = first_row;
    ++head;
  }

  /// Starts copying the tile.
  __device__ void load(bf16* q_tile, bf16* dout_tile) const {
    const int first = segment.q_begin + row;
    const int valid = segment.q_len - row;
    load_tile<Tiling::queries, kDim, Tiling::threads>(q_tile, arguments.q, first, valid, head * kDim);
    load_tile<Tiling::queries, kDim, Tiling::threads>(dout_tile, arguments.dout, first, valid, head * kDim);
    cp_async_commit();
  }

  /// This thread's query's shift and delta. Rows behind the segment get weights of 0.
  __device__ float2 statistics() const {
    const int query = row + static_cast<int>(threadIdx.x);
    if (threadIdx.x >= Tiling::queries || query >= segment.q_len) return make_float2(INFINITY, 0);
    return row_statistics(arguments, segment.q_begin + query, head);
  }
};

template <int kDim>
struct KeyGradients {
  Accumulator<KeyTiling<kDim>::blocks, kDim> dk = {};
  Accumulator<KeyTiling<kDim>::blocks, kDim> dv = {};
};

/// Scores of keys that a query does not see become -infinity. Rows are keys from `key` on, columns queries from `query`
/// on.
template <int kBlocks, int kQueries>
__device__ void mask_columns(Accumulator<kBlocks, kQueries>& scores, const Segment& segment, int key, int query) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
  for (int n = 0; n < kQueries / 8; ++n) {
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const int visible = segment.visible_keys(query + n * 8 + lane % 4 * 2 + e % 2);
#pragma unroll
      for (int block = 0; block < kBlocks; ++block)
        if (key + block * 16 + e / 2 * 8 + lane / 4 >= visible) scores[block][n][e] = -INFINITY;
    }
  }
}

/// Adds what a tile of queries gives to the warp's keys.
template <int kDim>
__device__ void add_queries(const Segment& segment, int key, int query, const KeyRows<kDim>& k, const KeyRows<kDim>& v,
                            const bf16* q_tile, const bf16* dout_tile, const float2* statistics, float exponent_scale,
                            KeyGradients<kDim>& sums) {
  using Tiling = KeyTiling<kDim>;
  constexpr int blocks = Tiling::blocks;
  constexpr int queries = Tiling::queries_at_once;
  const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll 1
  for (int part = 0; part < Tiling::queries; part += queries) {
    const float2* statistics_of_part = statistics + part + lane % 4 * 2;
    Accumulator<blocks, queries> weights = {};
    multiply_rows<blocks, queries>(weights, k, q_tile + part * kDim);
    if (key + blocks * 16 > segment.visible_keys(query + part))
      mask_columns<blocks, queries>(weights, segment, key, query + part);
#pragma unroll
    for (int n = 0; n < queries / 8; ++n) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const float shift = statistics_of_part[n * 8 + e % 2].x;
#pragma unroll
        for (int block = 0; block < blocks; ++block)
          weights[block][n][e] = fast_exp2(fmaf(weights[block][n][e], exponent_scale, -shift));
      }
    }
    multiply_weights<blocks, queries, kDim>(sums.dv, weights, dout_tile + part * kDim);
    Accumulator<blocks, queries> dweights = {};
    multiply_rows<blocks, queries>(dweights, v, dout_tile + part * kDim);
#pragma unroll
    for (int n = 0; n < queries / 8; ++n) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const float delta = statistics_of_part[n * 8 + e % 2].y;
#pragma unroll
        for (int block = 0; block < blocks; ++block) weights[block][n][e] *= dweights[block][n][e] - delta;
      }
    }
    multiply_weights<blocks, queries, kDim>(sums.dk, weights, q_tile + part * kDim);
  }
}

template <int kDim>
__global__ void __launch_bounds__(KeyTiling<kDim>::threads)
    key_gradients_kernel(const __grid_constant__ BackwardArguments arguments) {
  using Tiling = KeyTiling<kDim>;
  constexpr int tile_elements = Tiling::queries * kDim;
  DYNAMIC_SHARED_ARRAY(bf16, shared);
  bf16* k_tile = shared;
  bf16* v_tile = k_tile + Tiling::keys * kDim;
  bf16* q_tiles = v_tile + Tiling::keys * kDim;  // two of each, one is filled while the other is used
  bf16* dout_tiles = q_tiles + 2 * tile_elements;
  float2* statistics = reinterpret_cast<float2*>(dout_tiles + 2 * tile_elements);

  const int kv_head = static_cast<int>(blockIdx.x) % arguments.kv_heads;
  const int tile = static_cast<int>(blockIdx.x) / arguments.kv_heads;
  const Segment& segment = arguments.table.segment_of(tile);
  const int tile_key = (tile - segment.first_tile) * Tiling::keys;
  const int first_query = max(0, tile_key - segment.keys_of_first_query + 1);  // the first to see the tile's first key
  if (first_query >= segment.q_len) return;
  const int group = arguments.heads / arguments.kv_heads;
  const int first_row = first_query / Tiling::queries * Tiling::queries;
  QueryTiles<kDim> tiles{arguments, segment, first_row, first_row, kv_head * group, (kv_head + 1) * group};

  const int warp_row = static_cast<int>(threadIdx.x) / 32 * 16 * Tiling::blocks;
  const int warp_key = tile_key + warp_row;
  const int kv_column = kv_head * kDim;
  const int first = segment.k_begin + tile_key;
  const int valid = segment.k_len - tile_key;
  load_tile<Tiling::keys, kDim, Tiling::threads>(k_tile, arguments.k, first, valid, kv_column);
  load_tile<Tiling::keys, kDim, Tiling::threads>(v_tile, arguments.v, first, valid, kv_column);
  tiles.load(q_tiles, dout_tiles);
  if (threadIdx.x < Tiling::queries) statistics[threadIdx.x] = tiles.statistics();

  cp_async_wait<0>();
  __syncthreads();
  const KeyRows<kDim> k_rows(k_tile, warp_row);
  const KeyRows<kDim> v_rows(v_tile, warp_row);

  KeyGradients<kDim> sums;
  int now = 0;
#pragma unroll 1
  while (!tiles.ended()) {
    const int query = tiles.row;
    const int next = 1 - now;
    tiles.advance();
    cp_async_wait<0>();
    __syncthreads();  // this tile is there, nobody uses the one before any more
    float2 next_statistics = {};
    if (!tiles.ended()) {
      tiles.load(q_tiles + next * tile_elements, dout_tiles + next * tile_elements);
      next_statistics = tiles.statistics();
    }
    if (warp_key < segment.keys_of_rows(query, Tiling::queries))
      add_queries<kDim>(segment, warp_key, query, k_rows, v_rows, q_tiles + now * tile_elements,
                        dout_tiles + now * tile_elements, statistics + now * Tiling::queries, arguments.exponent_scale,
                        sums);
    if (threadIdx.x < Tiling::queries) statistics[next * Tiling::queries + threadIdx.x] = next_statistics;
    now = next;
  }
  add_result<Tiling::blocks, kDim>(arguments.dk, first, warp_row, valid, kv_column, arguments.scale, sums.dk);
  add_result<Tiling::blocks, kDim>(arguments.dv, first, warp_row, valid, kv_column, 1, sums.dv);
}

// --- gradients of queries ---

/// Adds what a tile of keys gives to the warp's queries; `statistics` are theirs.
template <int kDim>
__device__ void add_keys(const Segment& segment, int query, int key, const QueryRows<kDim>& q,
                         const QueryRows<kDim>& dout, const bf16* k_tile, const bf16* v_tile, const float2* statistics,
                         float exponent_scale, Accumulator<QueryTiling<kDim>::blocks, kDim>& sums) {
  constexpr int blocks = QueryTiling<kDim>::blocks;
  constexpr int keys = QueryTiling<kDim>::keys;
  const float2* statistics_of_thread = statistics + threadIdx.x % 32 / 4;
  Accumulator<blocks, keys> weights = {};
  multiply_rows<blocks, keys>(weights, q, k_tile);
  if (key + keys > segment.visible_keys(query)) mask_scores<blocks, keys>(weights, segment, query, key);
#pragma unroll
  for (int block = 0; block < blocks; ++block) {
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const float shift = statistics_of_thread[block * 16 + e / 2 * 8].x;
#pragma unroll
      for (int n = 0; n < keys / 8; ++n)
        weights[block][n][e] = fast_exp2(fmaf(weights[block][n][e], exponent_scale, -shift));
    }
  }
  Accumulator<blocks, keys> dweights = {};
  multiply_rows<blocks, keys>(dweights, dout, v_tile);
#pragma unroll
  for (int block = 0; block < blocks; ++block) {
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const float delta = statistics_of_thread[block * 16 + e / 2 * 8].y;
#pragma unroll
      for (int n = 0; n < keys / 8; ++n) weights[block][n][e] *= dweights[block][n][e] - delta;
    }
  }
  multiply_weights<blocks, keys, kDim>(sums, weights, k_tile);
}

template <int kDim>
__global__ void __launch_bounds__(QueryTiling<kDim>::threads)
    query_gradients_kernel(const __grid_constant__ BackwardArguments arguments) {
  using Tiling = QueryTiling<kDim>;
  constexpr int tile_elements = Tiling::keys * kDim;
  DYNAMIC_SHARED_ARRAY(bf16, shared);
  bf16* q_tile = shared;
  bf16* dout_tile = q_tile + Tiling::queries * kDim;
  bf16* k_tiles = dout_tile + Tiling::queries * kDim;  // two of each, one is filled while the other is used
  bf16* v_tiles = k_tiles + 2 * tile_elements;
  float2* statistics = reinterpret_cast<float2*>(v_tiles + 2 * tile_elements);
  static_assert(Tiling::threads == Tiling::queries);

  const int head = static_cast<int>(blockIdx.x) % arguments.heads;
  const int tile = static_cast<int>(blockIdx.x) / arguments.heads;
  const Segment& segment = arguments.table.segment_of(tile);
  // The last rows, which see the most keys, come first.
  const int tiles = (segment.q_len + Tiling::queries - 1) / Tiling::queries;
  const int tile_row = (tiles - 1 - (tile - segment.first_tile)) * Tiling::queries;
  const int warp_row = static_cast<int>(threadIdx.x) / 32 * 16 * Tiling::blocks;
  const int warp_query = tile_row + warp_row;
  const int tile_keys = segment.keys_of_rows(tile_row, Tiling::queries);
  const int warp_keys = segment.keys_of_rows(warp_query, 16 * Tiling::blocks);
  if (tile_keys == 0) return;

  const int column = head * kDim;
  const int kv_column = head / (arguments.heads / arguments.kv_heads) * kDim;
  const int first = segment.q_begin + tile_row;
  const int valid = segment.q_len - tile_row;
  const auto load_keys = [&](int key, int buffer) {
    const int first_key = segment.k_begin + key;
    const int valid_keys = segment.k_len - key;
    load_tile<Tiling::keys, kDim, Tiling::threads>(k_tiles + buffer * tile_elements, arguments.k, first_key, valid_keys,
                                                   kv_column);
    load_tile<Tiling::keys, kDim, Tiling::threads>(v_tiles + buffer * tile_elements, arguments.v, first_key, valid_keys,
                                                   kv_column);
    cp_async_commit();
  };
  load_tile<Tiling::queries, kDim, Tiling::threads>(q_tile, arguments.q, first, valid, column);
  load_tile<Tiling::queries, kDim, Tiling::threads>(dout_tile, arguments.dout, first, valid, column);
  load_keys(0, 0);
  // As many threads as queries. Rows behind the segment get weights of 0.
  const bool inside = static_cast<int>(threadIdx.x) < valid;
  statistics[threadIdx.x] =
      inside ? row_statistics(arguments, first + static_cast<int>(threadIdx.x), head) : make_float2(INFINITY, 0);

  const QueryRows<kDim> q_rows(q_tile, warp_row);
  const QueryRows<kDim> dout_rows(dout_tile, warp_row);
  Accumulator<Tiling::blocks, kDim> sums = {};
#pragma unroll 1
  for (int key = 0; key < tile_keys; key += Tiling::keys) {
    const int now = key / Tiling::keys % 2;
    cp_async_wait<0>();
    __syncthreads();  // these keys and values are there, nobody uses those before any more
    if (key + Tiling::keys < tile_keys) load_keys(key + Tiling::keys, 1 - now);
    if (key < warp_keys)
      add_keys<kDim>(segment, warp_query, key, q_rows, dout_rows, k_tiles + now * tile_elements,
                     v_tiles + now * tile_elements, statistics + warp_row, arguments.exponent_scale, sums);
  }
  add_result<Tiling::blocks, kDim>(arguments.dq, first, warp_row, valid, column, arguments.scale, sums);
}

template <int kDim>
void backward(cudaStream_t stream, const AttentionBackward& a) {
  BackwardArguments arguments{{},
                              rows_of<bf16>(a.q),
                              rows_of<bf16>(a.k),
                              rows_of<bf16>(a.v),
                              rows_of<bf16>(a.dout),
                              rows_of<float>(a.lse),
                              rows_of<float>(a.delta),
                              rows_of<float>(a.dq),
                              rows_of<float>(a.dk),
                              rows_of<float>(a.dv),
                              static_cast<int>(a.shape.num_heads),
                              static_cast<int>(a.shape.num_kv_heads),
                              a.shape.scale,
                              exponent_scale(a.shape.scale)};
  for_each_table(a.segments, Side::keys, KeyTiling<kDim>::keys, [&](const SegmentTable& table) {
    arguments.table = table;
    launch(key_gradients_kernel<kDim>, grid_of(table, a.shape.num_kv_heads), dim3(KeyTiling<kDim>::threads),
           KeyTiling<kDim>::shared_bytes, stream, arguments);
  });
  for_each_table(a.segments, Side::queries, QueryTiling<kDim>::queries, [&](const SegmentTable& table) {
    arguments.table = table;
    launch(query_gradients_kernel<kDim>, grid_of(table, a.shape.num_heads), dim3(QueryTiling<kDim>::threads),
           QueryTiling<kDim>::shared_bytes, stream, arguments);
  });
}

}  // namespace

void native_backward(cudaStream_t stream, const AttentionBackward& attention) {
  check_attention_backward(attention);
  const bool fast = fast_inputs(attention.shape, attention.q, attention.k, attention.v) &&
                    rows_of_16_bytes(attention.dout) && rows_of_pairs(attention.dq) && rows_of_pairs(attention.dk) &&
                    rows_of_pairs(attention.dv);
  if (!fast) return general_backward(stream, attention);
  (attention.shape.head_dim == 64 ? backward<64> : backward<128>)(stream, attention);
}

}  // namespace skrull::attention
