#include <omp.h>

#include <cmath>
#include <utility>
#include <vector>

#include "cpu/attention.h"
#include "cpu/attention_tiles.h"

namespace skrull {

namespace attention {

namespace {

/// One key-value head of one segment, cut into tiles of queries x keys.
///
/// Every tile belongs to a wave: the distance of its query tile from its key tile, along the longer side and modulo it.
/// The tiles of a wave share neither query rows nor keys, so they run side by side, and every gradient sums its tiles
/// in the order of the waves, whoever runs them.
struct Chain {
  const AttentionSegment* segment;
  std::int64_t kv_head;
  std::int64_t tile_queries, tile_keys;
  std::int64_t query_tiles, key_tiles;

  Chain(const AttentionSegment& of, std::int64_t head, std::int64_t group)
      : segment(&of),
        kv_head(head),
        tile_queries(attention::tile_queries(group)),
        // Packing queries pays over many keys, but a long segment should still have some tiles in a wave.
        tile_keys(key_block * std::clamp<std::int64_t>(of.k_len / (8 * key_block), 1, 4)),
        query_tiles(divide_up(of.q_len, tile_queries)),
        key_tiles(divide_up(of.k_len, tile_keys)) {}

  std::int64_t waves() const { return std::max(query_tiles, key_tiles); }
};

struct BackwardTask {
  const AttentionSegment* segment;
  std::int64_t kv_head;
  std::int64_t query, queries;
  std::int64_t key, keys;
};

/// Sizes and where the parts of a tile lie in a thread's scratch memory, in floats.
struct BackwardPlan {
  explicit BackwardPlan(const AttentionShape& shape)
      : group(shape.num_heads / shape.num_kv_heads),
        block_rows(block_queries(group) * group),
        rows(tile_queries(group) * group),
        stride(packed_stride(shape.head_dim)),
        q(0),
        dout(q + rows * stride),
        dq(dout + rows * stride),
        keys(dq + rows * stride),
        values(keys + key_block * shape.head_dim),
        key_rows(values + key_block * shape.head_dim),
        dkeys(key_rows + key_block * stride),
        dvalues(dkeys + key_block * stride),
        weights(dvalues + key_block * stride),
        dscores(weights + block_rows * score_stride),
        floats(round_up(dscores + block_rows * score_stride, lanes)) {}

  std::int64_t group, block_rows, rows, stride;
  std::int64_t q, dout, dq;       ///< [rows, stride]
  std::int64_t keys, values;      ///< panels of pack_transposed()
  std::int64_t key_rows;          ///< [key_block, stride], times the scale of the scores
  std::int64_t dkeys, dvalues;    ///< [key_block, stride], dkeys not yet times the scale
  std::int64_t weights, dscores;  ///< [block_rows, score_stride]
  std::int64_t floats;            ///< of all
};

template <class Stride>
class BackwardTile {
 public:
  BackwardTile(const AttentionBackward& call, const BackwardPlan& plan, Stride stride, const BackwardTask& task,
               float* memory)
      : call_(call),
        plan_(plan),
        stride_(stride),
        task_(task),
        head_dim_(call.shape.head_dim),
        rows_(task.queries * plan.group),
        memory_(memory) {}

  void run() {
    const std::int64_t first_query = task_.segment->q_begin + task_.query;
    const std::int64_t padded_rows = round_up(rows_, strip_rows);
    for (const auto& [source, part] : {std::pair{call_.q, plan_.q}, std::pair{call_.dout, plan_.dout}}) {
      pack_rows(source, first_query, task_.queries, task_.kv_head * plan_.group, plan_.group, head_dim_, stride_, 1,
                memory_ + part);
      std::fill_n(memory_ + part + rows_ * stride_, (padded_rows - rows_) * stride_, 0.0F);
    }
    std::fill_n(memory_ + plan_.dq, padded_rows * stride_, 0.0F);
    for (std::int64_t key = task_.key; key < task_.key + task_.keys; key += key_block)
      add_keys(key, std::min(key_block, task_.key + task_.keys - key));
    add_rows(memory_ + plan_.dq, stride_, 1, call_.dq, first_query, task_.queries, task_.kv_head * plan_.group,
             plan_.group, head_dim_);
  }

 private:
  /// How many of the keys [key, key + keys) a row of the tile sees.
  std::int64_t visible(std::int64_t row, std::int64_t key, std::int64_t keys) const {
    return std::clamp<std::int64_t>(visible_keys(*task_.segment, task_.query + row / plan_.group) - key, 0, keys);
  }

  /// The first row of the tile that sees `key`.
  std::int64_t first_row_of(std::int64_t key) const {
    if (!task_.segment->causal) return 0;
    return std::max<std::int64_t>(0, key + task_.segment->q_len - task_.segment->k_len - task_.query) * plan_.group;
  }

  /// One key block against all rows of the tile.
  void add_keys(std::int64_t key, std::int64_t keys) {
    const std::int64_t first = task_.segment->k_begin + key;
    const std::int64_t head = task_.kv_head;
    pack_transposed(call_.k, first, keys, head, head_dim_, memory_ + plan_.keys);
    pack_transposed(call_.v, first, keys, head, head_dim_, memory_ + plan_.values);
    pack_rows(call_.k, first, keys, head, 1, head_dim_, stride_, call_.shape.scale, memory_ + plan_.key_rows);
    std::fill_n(memory_ + plan_.dkeys, round_up(keys, strip_rows) * stride_, 0.0F);
    std::fill_n(memory_ + plan_.dvalues, round_up(keys, strip_rows) * stride_, 0.0F);
    for (std::int64_t row = 0; row < rows_; row += plan_.block_rows)
      add_block(row, std::min(row + plan_.block_rows, rows_), key, keys);
    add_rows(memory_ + plan_.dkeys, stride_, call_.shape.scale, call_.dk, first, keys, head, 1, head_dim_);
    add_rows(memory_ + plan_.dvalues, stride_, 1, call_.dv, first, keys, head, 1, head_dim_);
  }

  /// Rows [begin, end) of the tile against a key block.
  void add_block(std::int64_t begin, std::int64_t end, std::int64_t key, std::int64_t keys) {
    const std::int64_t columns = visible(end - 1, key, keys);
    if (columns == 0) return;
    const std::int64_t filled = round_up(round_up(columns, strip_rows), lanes);
    for (std::int64_t row = begin; row < end; row += strip_rows)
      add_strip(row, std::min(row + strip_rows, end), begin, key, keys, filled);

    // Sums over rows: the weights are read down their columns.
    for (std::int64_t column = 0; column < columns; column += strip_rows) {
      const std::int64_t row = std::max(begin, first_row_of(key + column));
      const std::int64_t at = (row - begin) * score_stride + column;
      multiply_strip<Into::add>(memory_ + plan_.weights + at, Constant<1>{}, score_stride,
                                memory_ + plan_.dout + row * stride_, stride_, end - row,
                                memory_ + plan_.dvalues + column * stride_, stride_, head_dim_);
      multiply_strip<Into::add>(memory_ + plan_.dscores + at, Constant<1>{}, score_stride,
                                memory_ + plan_.q + row * stride_, stride_, end - row,
                                memory_ + plan_.dkeys + column * stride_, stride_, head_dim_);
    }
  }

  /// Weights and score gradients of rows [begin, end), one strip of the block that starts at `block`: zero from what a
  /// row sees up to column `filled`. Adds the strip's share of dq.
  void add_strip(std::int64_t begin, std::int64_t end, std::int64_t block, std::int64_t key, std::int64_t keys,
                 std::int64_t filled) {
    const std::int64_t columns = visible(end - 1, key, keys);
    float* weights = memory_ + plan_.weights + (begin - block) * score_stride;
    float* dscores = memory_ + plan_.dscores + (begin - block) * score_stride;
    multiply_transposed(memory_ + plan_.q + begin * stride_, stride_, memory_ + plan_.keys, head_dim_, columns,
                        weights);
    multiply_transposed(memory_ + plan_.dout + begin * stride_, stride_, memory_ + plan_.values, head_dim_, columns,
                        dscores);
    for (std::int64_t row = begin; row < end; ++row) {
      const std::int64_t token = task_.segment->q_begin + task_.query + row / plan_.group;
      const std::int64_t head = task_.kv_head * plan_.group + row % plan_.group;
      const float lse = row_of<float>(call_.lse, token)[head];
      const float delta = row_of<float>(call_.delta, token)[head];
      const std::int64_t count = std::isinf(lse) && lse < 0 ? 0 : visible(row, key, keys);
      const std::int64_t at = (row - begin) * score_stride;
      differentiate_row(weights + at, dscores + at, count, filled, lse * log2_e, delta);
    }
    multiply_strip<Into::add>(dscores, Constant<score_stride>{}, 1, memory_ + plan_.key_rows, stride_, columns,
                              memory_ + plan_.dq + begin * stride_, stride_, head_dim_);
  }

  /// weights: scores -> 2^(score factor - lse); dscores: d(weights) -> weights (dscores - delta); both 0 in
  /// [count, filled).
  void differentiate_row(float* weights, float* dscores, std::int64_t count, std::int64_t filled, float lse,
                         float delta) const {
    const Floats factor = simd::broadcast(call_.shape.scale * log2_e);
    const Floats shift = simd::broadcast(-lse);
    const auto differentiate = [&](std::int64_t i, simd::Ints inside) {
      const Floats p = inside ? exp2_or_zero(simd::fma(simd::load(weights + i), factor, shift)) : Floats{};
      simd::store(weights + i, p);
      simd::store(dscores + i, inside ? p * (simd::load(dscores + i) - delta) : Floats{});
    };
    const simd::Ints all = simd::first_lanes(lanes);
    std::int64_t i = 0;
    for (; i + lanes <= count; i += lanes) differentiate(i, all);
    if (i < count) {
      differentiate(i, simd::first_lanes(count - i));
      i += lanes;
    }
    for (; i < filled; i += lanes) {
      simd::store(weights + i, Floats{});
      simd::store(dscores + i, Floats{});
    }
  }

  const AttentionBackward& call_;
  const BackwardPlan& plan_;
  Stride stride_;
  BackwardTask task_;
  std::int64_t head_dim_;
  std::int64_t rows_;
  float* memory_;
};

/// All chains, those with the most waves first.
std::vector<Chain> chains_of(const AttentionBackward& call, std::int64_t group) {
  std::vector<Chain> chains;
  for (const AttentionSegment& segment : call.segments) {
    if (segment.q_len == 0 || segment.k_len == 0) continue;
    for (std::int64_t head = 0; head < call.shape.num_kv_heads; ++head) chains.emplace_back(segment, head, group);
  }
  std::stable_sort(chains.begin(), chains.end(), [](const Chain& a, const Chain& b) { return a.waves() > b.waves(); });
  return chains;
}

/// The tiles of one wave in which any query sees any key, the costliest first.
void collect_wave(const std::vector<Chain>& chains, std::int64_t wave, std::vector<BackwardTask>& tasks) {
  tasks.clear();
  for (const Chain& chain : chains) {
    const std::int64_t waves = chain.waves();
    if (wave >= waves) break;
    const bool by_key = chain.key_tiles <= chain.query_tiles;
    const std::int64_t tiles = std::min(chain.key_tiles, chain.query_tiles);
    for (std::int64_t tile = 0; tile < tiles; ++tile) {
      const std::int64_t diagonal = tile * waves / tiles;
      const std::int64_t other = (by_key ? diagonal + wave : diagonal - wave + waves) % waves;
      const std::int64_t query = (by_key ? other : tile) * chain.tile_queries;
      const std::int64_t key = (by_key ? tile : other) * chain.tile_keys;
      const std::int64_t queries = std::min(chain.tile_queries, chain.segment->q_len - query);
      const std::int64_t keys = std::min(chain.tile_keys, visible_keys(*chain.segment, query + queries - 1) - key);
      if (keys > 0) tasks.push_back({chain.segment, chain.kv_head, query, queries, key, keys});
    }
  }
  std::stable_sort(tasks.begin(), tasks.end(), [](const BackwardTask& a, const BackwardTask& b) {
    return a.queries * a.keys > b.queries * b.keys;
  });
}

}  // namespace

std::int64_t backward_scratch_floats(const AttentionShape& shape) {
  return BackwardPlan(shape).floats;
}

}  // namespace attention

void cpu_attention_backward(const AttentionBackward& call) {
  using namespace attention;
  check_attention_backward(call);
  const BackwardPlan plan(call.shape);
  const std::vector<Chain> chains = chains_of(call, plan.group);
  const std::int64_t waves = chains.empty() ? 0 : chains.front().waves();
  float* memory = scratch(plan.floats * omp_get_max_threads());
  std::vector<BackwardTask> tasks;
  with_stride(call.shape.head_dim, [&](auto stride) {
    for (std::int64_t wave = 0; wave < waves; ++wave) {
      collect_wave(chains, wave, tasks);
      const auto count = static_cast<std::int64_t>(tasks.size());
#pragma omp parallel for schedule(dynamic, 1)
      for (std::int64_t i = 0; i < count; ++i)
        BackwardTile(call, plan, stride, tasks[static_cast<std::size_t>(i)],
                     memory + omp_get_thread_num() * plan.floats)
            .run();
    }
  });
}

}  // namespace skrull
