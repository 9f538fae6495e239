#pragma once
// Segments as attention's kernels take them: tables that travel as kernel parameters, with numbered tiles, so that one
// grid covers the tiles of many segments. A kernel's block number is tile * heads + head; heads are next to each other
// because they read the same keys and values.

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "kernel/kernel.h"
#include "kernel/rows.h"
#include "skrull/core/error.h"
#include "skrull/core/tensor.h"
#include "skrull/device/attention_operands.h"

namespace skrull::attention {

/// Whether rows can be read and written in pieces of 16 bytes.
inline bool rows_of_16_bytes(const ConstTensorView& view) {
  return rows_aligned_to(static_cast<int>(16 / size_of(view.dtype())), view);
}
/// Whether pairs of fp32 or bf16 from an even column on are aligned.
inline bool rows_of_pairs(const ConstTensorView& view) {
  return rows_aligned_to(2, view);
}

struct Segment {
  int q_begin, q_len, k_begin, k_len;
  int keys_of_first_query;  ///< keys that query row 0 sees, before clamping; each further row sees one more
  int first_tile;           ///< the number of its first tile in the table

  /// How many keys query row `query` of the segment sees.
  __device__ int visible_keys(int query) const { return max(0, min(query + keys_of_first_query, k_len)); }
  /// How many keys any of `rows` query rows from `first` on sees; 0 when all lie behind the segment.
  __device__ int keys_of_rows(int first, int rows) const {
    return first < q_len ? visible_keys(min(first + rows, q_len) - 1) : 0;
  }
};

inline constexpr int most_segments = 128;  ///< of a table: about 3 of the 4 KB that kernel parameters have

struct SegmentTable {
  Segment segments[most_segments];
  int count = 0;
  int tiles = 0;

  /// The segment of a tile: the last one whose first tile is not behind it.
  __device__ const Segment& segment_of(int tile) const {
    int low = 0;
    int high = count - 1;
    while (low < high) {
      const int middle = (low + high + 1) / 2;
      if (segments[middle].first_tile <= tile)
        low = middle;
      else
        high = middle - 1;
    }
    return segments[low];
  }
};

enum class Side { queries, keys };  ///< what a tile is a range of

/// Calls launch(table) for tables that together hold, once each, all tiles of `tile_rows` rows of all segments'
/// queries or keys, long segments first. Rows without a counterpart on the other side have tiles too: a forward
/// writes them.
template <class Launch>
void for_each_table(std::span<const AttentionSegment> segments, Side side, int tile_rows, Launch&& launch) {
  constexpr std::int64_t most_rows = std::int64_t{1} << 30;  // sums of two row numbers fit 32 bits
  const auto rows = [side](const AttentionSegment& s) { return side == Side::queries ? s.q_len : s.k_len; };
  std::vector<AttentionSegment> ordered;
  for (const AttentionSegment& s : segments) {
    require(std::max({s.q_begin + s.q_len, s.k_begin + s.k_len}) < most_rows,
            "attention: a segment ends at query row {} and key row {}, the CUDA kernels count to {}",
            s.q_begin + s.q_len, s.k_begin + s.k_len, most_rows);
    if (rows(s) > 0) ordered.push_back(s);
  }
  std::stable_sort(ordered.begin(), ordered.end(), [](const AttentionSegment& a, const AttentionSegment& b) {
    return a.q_len * a.k_len > b.q_len * b.k_len;
  });
  SegmentTable table;
  const auto flush = [&] {
    if (table.count > 0) launch(table);
    table.count = table.tiles = 0;
  };
  for (const AttentionSegment& s : ordered) {
    const std::int64_t offset = s.causal ? s.k_len - s.q_len + 1 : s.k_len;
    table.segments[table.count++] = {static_cast<int>(s.q_begin), static_cast<int>(s.q_len),
                                     static_cast<int>(s.k_begin), static_cast<int>(s.k_len),
                                     static_cast<int>(offset),    table.tiles};
    table.tiles += static_cast<int>((rows(s) + tile_rows - 1) / tile_rows);
    if (table.count == most_segments) flush();
  }
  flush();
}

/// Blocks of a grid over all tiles and heads.
inline dim3 grid_of(const SegmentTable& table, std::int64_t heads) {
  const std::int64_t blocks = table.tiles * heads;
  require(blocks <= 0x7FFFFFFF, "attention: {} tiles of {} heads are more than a grid holds", table.tiles, heads);
  return dim3(static_cast<unsigned>(blocks));
}

inline constexpr float ln_2 = 0.693147181F;
inline constexpr float log2_e = 1.44269504F;

/// exp(scale x) = exp2(exponent_scale x). Never 0: a masked score, -infinity, must stay it when scaled.
inline float exponent_scale(float scale) {
  return std::max(scale * log2_e, 1e-30F);
}

/// A row's global log-sum-exp in powers of two, for exp2(score - it). Rows without keys get weights of 0.
__device__ inline float exponent_shift(float log_sum_exp) {
  return log_sum_exp == -INFINITY ? INFINITY : log_sum_exp * log2_e;
}

}  // namespace skrull::attention
