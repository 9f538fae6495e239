#pragma once
// What attention's forward and backward share: the register-blocked product, packing, and where segments mask.
//
// Rows of a tile are (query, head of the group): all query heads of one key-value head are processed together, query by
// query, so that packed keys and values serve the whole group and causal limits rise from row to row.

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <type_traits>

#include "cpu/kernel.h"
#include "cpu/vector_math.h"
#include "skrull/core/tensor.h"
#include "skrull/device/attention_operands.h"
#include "skrull/device/ops.h"

namespace skrull::attention {

using simd::Floats;
using simd::lanes;

#ifdef __AVX512F__
inline constexpr int strip_rows = 14;  ///< 14 x 2 sums, 2 registers of B, 1 broadcast: 31 of 32 registers
inline constexpr std::int64_t key_block = 224;
#else
inline constexpr int strip_rows = 6;  ///< 6 x 2 sums, 2 registers of B, 1 broadcast: 15 of 16 registers
inline constexpr std::int64_t key_block = 192;
#endif
inline constexpr int strip_vectors = 2;
inline constexpr std::int64_t panel_width = strip_vectors * lanes;  ///< keys per panel of a transposed block
inline constexpr std::int64_t score_stride = key_block + 16;        ///< of score tiles; an odd number of cache lines
static_assert(key_block % strip_rows == 0 && key_block % panel_width == 0);

constexpr std::int64_t round_up(std::int64_t x, std::int64_t unit) {
  return (x + unit - 1) / unit * unit;
}
constexpr std::int64_t divide_up(std::int64_t x, std::int64_t unit) {
  return (x + unit - 1) / unit;
}

// --- sizes ---

/// Query rows whose scores against a key block are held at once: whole strips, about 112 rows of all heads of a group.
inline std::int64_t block_queries(std::int64_t group) {
  constexpr std::int64_t most_rows = 140;
  std::int64_t queries = strip_rows / std::gcd<std::int64_t>(strip_rows, group);
  while (2 * queries * group <= most_rows) queries *= 2;
  return queries;
}

/// Query rows of a tile, which share packed keys and values: enough rows to make up for the packing.
inline std::int64_t tile_queries(std::int64_t group) {
  return 4 * block_queries(group);
}

template <std::int64_t kStride>
using Constant = std::integral_constant<std::int64_t, kStride>;

/// Floats from row to row of packed tiles.
inline std::int64_t packed_stride(std::int64_t head_dim) {
  return head_dim <= 64 ? 64 : head_dim <= 128 ? 128 : round_up(head_dim, lanes);
}

/// Calls body(packed_stride(head_dim)), with a compile-time constant for head sizes up to 128.
template <class Body>
void with_stride(std::int64_t head_dim, Body&& body) {
  const std::int64_t stride = packed_stride(head_dim);
  if (stride == 64) return body(Constant<64>{});
  if (stride == 128) return body(Constant<128>{});
  body(stride);
}

// --- the product ---

enum class Into { overwrite, add, scale_and_add };

/// C[strip_rows, kVectors registers] = (0, C, or factors[r] C) + A B over `steps`. A(r, s) = a[r * a_row + s * a_step];
/// B(s, :) = b[s * b_step ...]; rows of C c_row apart. a_row best is a constant: all addresses are then one register
/// and a displacement.
template <int kVectors, Into kInto, class RowStride>
inline void multiply_block(const float* a, RowStride a_row, std::int64_t a_step, const float* b, std::int64_t b_step,
                           std::int64_t steps, float* c, std::int64_t c_row, const float* factors) {
  Floats sums[strip_rows][kVectors];
#pragma GCC unroll 16
  for (int r = 0; r < strip_rows; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) sums[r][v] = Floats{};
  }
  for (std::int64_t s = 0; s < steps; ++s) {
    Floats row_of_b[kVectors];
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) row_of_b[v] = simd::load(b + v * lanes);
#pragma GCC unroll 16
    for (int r = 0; r < strip_rows; ++r) {
      const Floats element = simd::broadcast(a[r * a_row]);
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) sums[r][v] = simd::fma(element, row_of_b[v], sums[r][v]);
    }
    a += a_step;
    b += b_step;
  }
#pragma GCC unroll 16
  for (int r = 0; r < strip_rows; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      float* target = c + r * c_row + v * lanes;
      if constexpr (kInto == Into::overwrite) simd::store(target, sums[r][v]);
      if constexpr (kInto == Into::add) simd::store(target, simd::load(target) + sums[r][v]);
      if constexpr (kInto == Into::scale_and_add)
        simd::store(target, simd::fma(simd::broadcast(factors[r]), simd::load(target), sums[r][v]));
    }
  }
}

/// The same over `columns` columns of B and C (rounded up to whole registers), panel by panel.
template <Into kInto, class RowStride>
inline void multiply_strip(const float* a, RowStride a_row, std::int64_t a_step, const float* b, std::int64_t b_step,
                           std::int64_t steps, float* c, std::int64_t c_row, std::int64_t columns,
                           const float* factors = nullptr) {
  std::int64_t column = 0;
  for (; column + panel_width <= round_up(columns, lanes); column += panel_width)
    multiply_block<strip_vectors, kInto>(a, a_row, a_step, b + column, b_step, steps, c + column, c_row, factors);
  for (; column < columns; column += lanes)
    multiply_block<1, kInto>(a, a_row, a_step, b + column, b_step, steps, c + column, c_row, factors);
}

/// Scores of one strip: C[strip_rows, columns] = A[strip_rows, d] against a block packed by pack_transposed().
template <class RowStride>
inline void multiply_transposed(const float* a, RowStride a_row, const float* panels, std::int64_t head_dim,
                                std::int64_t columns, float* c) {
  for (std::int64_t column = 0; column < columns; column += panel_width)
    multiply_block<strip_vectors, Into::overwrite>(a, a_row, 1, panels + column * head_dim, panel_width, head_dim,
                                                   c + column, score_stride, nullptr);
}

// --- packing: any dtype and row stride in, contiguous fp32 out ---

/// Heads [head, head + heads) of rows [row, row + rows): target row (i, h) of `stride` floats, zero behind head_dim up
/// to a whole register, times `factor`.
template <class Stride>
void pack_rows(const ConstTensorView& source, std::int64_t row, std::int64_t rows, std::int64_t head,
               std::int64_t heads, std::int64_t head_dim, Stride stride, float factor, float* target) {
  with_dtype(source.dtype(), [&](auto element) {
    using Element = typename decltype(element)::type;
    for (std::int64_t i = 0; i < rows; ++i) {
      const Element* from = row_of<Element>(source, row + i) + head * head_dim;
      for (std::int64_t h = 0; h < heads; ++h, from += head_dim, target += stride) {
        if (head_dim == stride) {
          for (std::int64_t c = 0; c < stride; c += lanes) simd::store(target + c, simd::load(from + c) * factor);
        } else {
          for (std::int64_t c = 0; c < head_dim; c += lanes)
            simd::store(target + c, simd::load_first(from + c, head_dim - c) * factor);
        }
      }
    }
  });
}

/// The way back, for sums: heads [head, head + heads) of rows [row, row + rows) of `target` (fp32) += factor * source.
template <class Stride>
void add_rows(const float* source, Stride stride, float factor, const TensorView& target, std::int64_t row,
              std::int64_t rows, std::int64_t head, std::int64_t heads, std::int64_t head_dim) {
  for (std::int64_t i = 0; i < rows; ++i) {
    float* to = row_of<float>(target, row + i) + head * head_dim;
    for (std::int64_t h = 0; h < heads; ++h, to += head_dim, source += stride) {
      const auto sum = [&](std::int64_t c, Floats old) {
        return simd::fma(simd::load(source + c), simd::broadcast(factor), old);
      };
      if (head_dim == stride) {
        for (std::int64_t c = 0; c < stride; c += lanes) simd::store(to + c, sum(c, simd::load(to + c)));
      } else {
        for (std::int64_t c = 0; c < head_dim; c += lanes)
          simd::store_first(to + c, sum(c, simd::load_first(to + c, head_dim - c)), head_dim - c);
      }
    }
  }
}

/// One head of rows [row, row + rows), transposed into panels [panel][dimension][panel_width]; rows up to the end of
/// the last panel are zero.
void pack_transposed(const ConstTensorView& source, std::int64_t row, std::int64_t rows, std::int64_t head,
                     std::int64_t head_dim, float* panels);

// --- softmax ---

inline constexpr float log2_e = 1.4426950408889634F;

/// 2^x, 0 below 2^-64: such weights are far under fp32's precision of a row's sum, and products with them could be
/// subnormal, which is slow.
[[gnu::always_inline]] inline Floats exp2_or_zero(Floats x) {
  const Floats power = simd::round_to_whole(x);
  return x < -64.0F ? Floats{} : simd::scale_by_power(simd::exp2_fraction(x - power), power);
}

// --- scratch ---

/// Floats of scratch memory per thread.
std::int64_t forward_scratch_floats(const AttentionShape& shape);
std::int64_t backward_scratch_floats(const AttentionShape& shape);

/// 64-byte aligned memory of the calling thread, kept until it asks for more; contents undefined.
float* scratch(std::int64_t floats);

}  // namespace skrull::attention
