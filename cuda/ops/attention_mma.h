#pragma once
// Tiles of bf16 rows in shared memory and the products of attention's fast path on the tensor cores.
//
// A tile has kDim columns (64 or 128) in chunks of 8; chunk c of row r lies at place c ^ (r % 8), so that the eight
// rows that ldmatrix reads at once lie in different banks. Products are mma.m16n8k16: a warp owns blocks of 16 rows of
// the result; thread (g, c) = (lane / 4, lane % 4) holds rows g and g + 8, columns 2c and 2c + 1 of each 16 x 8 piece:
// element e of a piece is row g + 8 (e / 2), column 2c + e % 2.

#include <cstdint>
#include <cstring>

#include "kernel/kernel.h"
#include "ops/attention_segments.h"

namespace skrull::attention {

inline constexpr int chunk_elements = 8;  ///< 16 bytes

template <int kDim>
__device__ inline int tile_offset(int row, int chunk) {
  return row * kDim + (chunk ^ (row % 8)) * chunk_elements;
}

/// The lane's row of ldmatrix, for the 16 rows and 16 columns that a tile begins with: matrices are (rows 0-7, chunk
/// 0), (rows 8-15, chunk 0), (rows 0-7, chunk 1), (rows 8-15, chunk 1) as mma takes its A, and its B transposed. 16 k
/// columns further on it is `^ 16 k`, 16 rows further on `+ 16 kDim`; a tile is aligned to its rows.
template <int kDim>
__device__ inline SharedRow fragment_row(const bf16* tile) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  return SharedRow(tile + tile_offset<kDim>(lane % 16, lane / 16));
}
/// The same with rows and chunks in turn, as mma takes two pieces of B whose columns are the tile's rows.
template <int kDim>
__device__ inline SharedRow column_fragment_row(const bf16* tile) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  return SharedRow(tile + tile_offset<kDim>(lane / 16 * 8 + lane % 8, lane / 8 % 2));
}

/// Starts copying rows [first, first + kRows) of `source`, kDim columns from `column`, into a tile by all kThreads
/// threads of the block. Rows behind the first `valid` are 0.
template <int kRows, int kDim, int kThreads>
__device__ inline void load_tile(bf16* tile, const Rows<const bf16>& source, int first, int valid, int column) {
  constexpr int chunks = kDim / chunk_elements;
  constexpr int rows_at_once = kThreads / chunks;
  static_assert(kRows % rows_at_once == 0 && rows_at_once % 8 == 0);  // so that the places of chunks repeat
  const int row = static_cast<int>(threadIdx.x) / chunks;
  const int chunk = static_cast<int>(threadIdx.x) % chunks;
  const bf16* from = source.row(first + row) + column + chunk * chunk_elements;
  bf16* into = tile + tile_offset<kDim>(row, chunk);
#pragma unroll
  for (int begin = 0; begin < kRows; begin += rows_at_once) {
    cp_async16_or_zero(into + begin * kDim, from, begin + row < valid);
    from += rows_at_once * source.stride;
  }
}

/// Two floats as the bf16 pair that mma takes: the first in the lower half.
__device__ inline std::uint32_t pack_bf16(float first, float second) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(first, second);
  std::uint32_t bits;
  memcpy(&bits, &pair, sizeof(bits));
  return bits;
}

/// Pieces of 16 x 8 of a warp's result: kBlocks blocks of 16 rows, kColumns columns.
template <int kBlocks, int kColumns>
using Accumulator = float[kBlocks][kColumns / 8][4];

/// What a warp multiplies, mma's A: kBlocks * 16 rows of a tile, in shared memory.
template <int kBlocks, int kDim>
class SharedRows {
 public:
  __device__ SharedRows(const bf16* tile, int row) : rows_(tile + row * kDim) {}
  __device__ void read(int k, std::uint32_t (&fragments)[kBlocks][4]) const {
#pragma unroll
    for (int block = 0; block < kBlocks; ++block)
      ldmatrix_x4<false>(fragments[block], (fragment_row<kDim>(rows_) ^ 16 * k) + block * 16 * kDim);
  }

 private:
  const bf16* rows_;
};

/// The same in registers, for rows that are multiplied again and again: of a product of few rows, reading shared memory
/// takes longer than multiplying.
template <int kBlocks, int kDim>
class RowsInRegisters {
 public:
  __device__ RowsInRegisters(const bf16* tile, int row) {
    const SharedRows<kBlocks, kDim> rows(tile, row);
#pragma unroll
    for (int k = 0; k < kDim / 16; ++k) rows.read(k, fragments_[k]);
  }
  __device__ void read(int k, std::uint32_t (&fragments)[kBlocks][4]) const {
#pragma unroll
    for (int block = 0; block < kBlocks; ++block) {
#pragma unroll
      for (int i = 0; i < 4; ++i) fragments[block][i] = fragments_[k][block][i];
    }
  }

 private:
  std::uint32_t fragments_[kDim / 16][kBlocks][4];
};

/// result += A B^T: A is SharedRows or RowsInRegisters, B the kColumns rows of tile `b`.
template <int kBlocks, int kColumns, int kDim, template <int, int> class RowsOfA>
__device__ inline void multiply_rows(Accumulator<kBlocks, kColumns>& result, const RowsOfA<kBlocks, kDim>& a,
                                     const bf16* b) {
  const SharedRow rows_of_b = column_fragment_row<kDim>(b);
#pragma unroll
  for (int k = 0; k < kDim / 16; ++k) {
    std::uint32_t of_a[kBlocks][4];
    a.read(k, of_a);
#pragma unroll
    for (int n = 0; n < kColumns / 16; ++n) {
      std::uint32_t of_b[4];
      ldmatrix_x4<false>(of_b, (rows_of_b ^ 16 * k) + n * 16 * kDim);
      const std::uint32_t left[2] = {of_b[0], of_b[1]};
      const std::uint32_t right[2] = {of_b[2], of_b[3]};
#pragma unroll
      for (int block = 0; block < kBlocks; ++block) {
        mma_m16n8k16_bf16(result[block][2 * n], of_a[block], left);
        mma_m16n8k16_bf16(result[block][2 * n + 1], of_a[block], right);
      }
    }
  }
}

/// result += W B: W is what the warp holds of a result before, rounded to bf16; B the kRows rows of tile `b`.
template <int kBlocks, int kRows, int kDim>
__device__ inline void multiply_weights(Accumulator<kBlocks, kDim>& result, const Accumulator<kBlocks, kRows>& weights,
                                        const bf16* b) {
  const SharedRow rows_of_b = fragment_row<kDim>(b);
#pragma unroll
  for (int k = 0; k < kRows / 16; ++k) {
    std::uint32_t of_weights[kBlocks][4];
#pragma unroll
    for (int block = 0; block < kBlocks; ++block) {
      const float(&left)[4] = weights[block][2 * k];
      const float(&right)[4] = weights[block][2 * k + 1];
      of_weights[block][0] = pack_bf16(left[0], left[1]);
      of_weights[block][1] = pack_bf16(left[2], left[3]);
      of_weights[block][2] = pack_bf16(right[0], right[1]);
      of_weights[block][3] = pack_bf16(right[2], right[3]);
    }
#pragma unroll
    for (int n = 0; n < kDim / 16; ++n) {
      std::uint32_t of_b[4];
      ldmatrix_x4<true>(of_b, (rows_of_b ^ 16 * n) + k * 16 * kDim);
      const std::uint32_t left[2] = {of_b[0], of_b[1]};
      const std::uint32_t right[2] = {of_b[2], of_b[3]};
#pragma unroll
      for (int block = 0; block < kBlocks; ++block) {
        mma_m16n8k16_bf16(result[block][2 * n], of_weights[block], left);
        mma_m16n8k16_bf16(result[block][2 * n + 1], of_weights[block], right);
      }
    }
  }
}

/// Scores of keys that a row does not see become -infinity. Rows are queries from `query` on, columns keys from `key`
/// on.
template <int kBlocks, int kKeys>
__device__ inline void mask_scores(Accumulator<kBlocks, kKeys>& scores, const Segment& segment, int query, int key) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
  for (int block = 0; block < kBlocks; ++block) {
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const int visible = segment.visible_keys(query + block * 16 + e / 2 * 8 + lane / 4);
#pragma unroll
      for (int n = 0; n < kKeys / 8; ++n)
        if (key + n * 8 + lane % 4 * 2 + e % 2 >= visible) scores[block][n][e] = -INFINITY;
    }
  }
}

/// Over the four threads that share a row of a result.
__device__ inline float row_sum(float x) {
  x += __shfl_xor_sync(0xFFFFFFFFU, x, 1);
  return x + __shfl_xor_sync(0xFFFFFFFFU, x, 2);
}
__device__ inline float row_max(float x) {
  x = fmaxf(x, __shfl_xor_sync(0xFFFFFFFFU, x, 1));
  return fmaxf(x, __shfl_xor_sync(0xFFFFFFFFU, x, 2));
}

/// target[0..1] += factor * (first, second); 8-byte aligned.
__device__ inline void add_pair(float* target, float factor, float first, float second) {
  float2 sum = *reinterpret_cast<const float2*>(target);
  sum.x += factor * first;
  sum.y += factor * second;
  *reinterpret_cast<float2*>(target) = sum;
}

/// gradient rows [first + row] += factor * sums, kDim columns from `column`, of the warp's rows below `valid`.
template <int kBlocks, int kDim>
__device__ inline void add_result(const Rows<float>& gradient, int first, int warp_row, int valid, int column,
                                  float factor, const Accumulator<kBlocks, kDim>& sums) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
  for (int block = 0; block < kBlocks; ++block) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = warp_row + block * 16 + half * 8 + lane / 4;
      if (row >= valid) continue;
      float* target = gradient.row(first + row) + column + lane % 4 * 2;
#pragma unroll
      for (int n = 0; n < kDim / 8; ++n)
        add_pair(target + n * 8, factor, sums[block][n][2 * half], sums[block][n][2 * half + 1]);
    }
  }
}

/// Whether the fast path has kernels for these inputs.
inline bool fast_inputs(const AttentionShape& shape, const ConstTensorView& q, const ConstTensorView& k,
                        const ConstTensorView& v) {
  return q.dtype() == DType::bfloat16 && (shape.head_dim == 64 || shape.head_dim == 128) && rows_of_16_bytes(q) &&
         rows_of_16_bytes(k) && rows_of_16_bytes(v);
}

}  // namespace skrull::attention
