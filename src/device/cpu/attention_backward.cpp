#include <omp.h>

#include <cmath>
#include <vector>

#include "cpu/attention.h"
#include "cpu/attention_tiles.h"

namespace skrull {

namespace attention {

namespace {

/// One key-value head of one segment, cut into square tiles of key_block queries x key_block keys.
struct Chain {
  const AttentionSegment* segment;
  std::int64_t kv_head;
  std::int64_t query_tiles, key_tiles;

  /// A tile's wave is the distance of its query tile from its key tile, modulo the larger side. The tiles of a wave
  /// share neither query rows nor keys, so they run side by side, and every gradient sums its tiles in the order of the
  /// waves, whoever runs them.
  std::int64_t waves() const { return std::max(query_tiles, key_tiles); }
};

struct BackwardTask {
  const AttentionSegment* segment;
  std::int64_t kv_head;
  std::int64_t query, queries;
  std::int64_t key, keys;
};

/// Sizes of a tile and where its parts lie in a thread's scratch memory, in floats.
struct BackwardPlan {
  explicit BackwardPlan(const AttentionShape& shape)
      : group(shape.num_heads / shape.num_kv_heads),
        queries(queries_of(140, group)),
        rows(round_up(queries * group, strip_rows)),
        stride(packed_stride(shape.head_dim)),
        q(0),
        dout(q + rows * stride),
        dq(dout + rows * stride),
        weights(dq + strip_rows * stride),
        dscores(weights + rows * score_stride),
        keys(dscores + rows * score_stride),
        values(keys + key_block * shape.head_dim),
        key_rows(values + key_block * shape.head_dim),
        dkeys(key_rows + key_block * stride),
        dvalues(dkeys + key_block * stride),
        floats(round_up(dvalues + key_block * stride, lanes)) {}

  std::int64_t group, queries, rows, stride;
  std::int64_t q, dout;         ///< [rows, stride]
  std::int64_t dq;              ///< [strip_rows, stride]
  std::int64_t weights;         ///< [rows, score_stride]
  std::int64_t dscores;         ///< [rows, score_stride]
  std::int64_t keys, values;    ///< panels of pack_transposed()
  std::int64_t key_rows;        ///< [key_block, stride], times the scale of the scores
  std::int64_t dkeys, dvalues;  ///< [key_block, stride]
  std::int64_t floats;          ///< of all
};

template <class Stride>
class BackwardTile {
 public:
  BackwardTile(const AttentionBackward& call, const BackwardPlan& plan, Stride stride, float* memory)
      : call_(call), plan_(plan), stride_(stride), memory_(memory) {}

  void run(const BackwardTask& task) {
    const std::int64_t head_dim = call_.shape.head_dim;
    const std::int64_t first_key = task.segment->k_begin + task.key;
    pack_transposed(call_.k, first_key, task.keys, task.kv_head, head_dim, memory_ + plan_.keys);
    pack_transposed(call_.v, first_key, task.keys, task.kv_head, head_dim, memory_ + plan_.values);
    pack_rows(call_.k, first_key, task.keys, task.kv_head, 1, head_dim, stride_, call_.shape.scale,
              memory_ + plan_.key_rows);
    std::fill_n(memory_ + plan_.dkeys, key_block * stride_, 0.0F);
    std::fill_n(memory_ + plan_.dvalues, key_block * stride_, 0.0F);
    for (std::int64_t query = task.query; query < task.query + task.queries; query += plan_.queries)
      add_queries(task, query, std::min(plan_.queries, task.query + task.queries - query));
    add_rows(memory_ + plan_.dkeys, task.keys, 1, head_dim, stride_, call_.shape.scale, call_.dk, first_key,
             task.kv_head);
    add_rows(memory_ + plan_.dvalues, task.keys, 1, head_dim, stride_, 1, call_.dv, first_key, task.kv_head);
  }

 private:
  std::int64_t visible(const BackwardTask& task, std::int64_t query) const {
    return std::clamp<std::int64_t>(visible_keys(*task.segment, query) - task.key, 0, task.keys);
  }

  /// Query rows [query, query + queries) of the segment: their share of dq, dkeys and dvalues.
  void add_queries(const BackwardTask& task, std::int64_t query, std::int64_t queries) {
    const std::int64_t head_dim = call_.shape.head_dim;
    const std::int64_t rows = queries * plan_.group;
    const std::int64_t columns = visible(task, query + queries - 1);
    if (columns == 0) return;
    const std::int64_t padding = round_up(rows, strip_rows) - rows;
    for (const auto& [source, target] : {std::pair{call_.q, plan_.q}, std::pair{call_.dout, plan_.dout}}) {
      pack_rows(source, task.segment->q_begin + query, queries, task.kv_head * plan_.group, plan_.group, head_dim,
                stride_, 1, memory_ + target);
      std::fill_n(memory_ + target + rows * stride_, padding * stride_, 0.0F);
    }
    for (std::int64_t row = 0; row < rows; row += strip_rows) add_strip(task, query, row, rows, columns);

    for (std::int64_t key = 0; key < columns; key += strip_rows) {
      std::int64_t row = 0;  // the first row that sees any of these keys
      if (task.segment->causal)
        row = std::max<std::int64_t>(0, task.key + key - (visible_keys_unclamped(task, query) - 1)) * plan_.group;
      const float* weights = memory_ + plan_.weights + row * score_stride + key;
      const float* dscores = memory_ + plan_.dscores + row * score_stride + key;
      multiply_strip<Into::add>(weights, Constant<1>{}, score_stride, memory_ + plan_.dout + row * stride_, stride_,
                                rows - row, memory_ + plan_.dvalues + key * stride_, stride_, head_dim);
      multiply_strip<Into::add>(dscores, Constant<1>{}, score_stride, memory_ + plan_.q + row * stride_, stride_,
                                rows - row, memory_ + plan_.dkeys + key * stride_, stride_, head_dim);
    }
  }

  static std::int64_t visible_keys_unclamped(const BackwardTask& task, std::int64_t query) {
    return query + task.segment->k_len - task.segment->q_len + 1;
  }

  /// Weights and gradients of the scores of one strip of rows, zero from what a row sees up to where `block_columns`
  /// needs them; adds the strip's share of dq.
  void add_strip(const BackwardTask& task, std::int64_t query, std::int64_t row, std::int64_t rows,
                 std::int64_t block_columns) {
    const std::int64_t head_dim = call_.shape.head_dim;
    const std::int64_t filled = round_up(round_up(block_columns, strip_rows), lanes);
    const std::int64_t last = std::min(row + strip_rows, rows) - 1;
    const std::int64_t columns = visible(task, query + last / plan_.group);
    float* weights = memory_ + plan_.weights + row * score_stride;
    float* dscores = memory_ + plan_.dscores + row * score_stride;
    multiply_transposed(memory_ + plan_.q + row * stride_, stride_, memory_ + plan_.keys, head_dim, columns, weights);
    multiply_transposed(memory_ + plan_.dout + row * stride_, stride_, memory_ + plan_.values, head_dim, columns,
                        dscores);
    for (std::int64_t r = row; r <= last; ++r, weights += score_stride, dscores += score_stride) {
      const std::int64_t i = query + r / plan_.group;
      const std::int64_t token = task.segment->q_begin + i;
      const std::int64_t head = task.kv_head * plan_.group + r % plan_.group;
      const float lse = call_.lse.as<float>()[token * call_.lse.row_stride() + head];
      const float delta = call_.delta.as<float>()[token * call_.delta.row_stride() + head];
      const std::int64_t count = std::isinf(lse) && lse < 0 ? 0 : visible(task, i);
      differentiate_row(weights, dscores, count, filled, lse * log2_e, delta);
    }
    if (columns == 0) return;
    dscores = memory_ + plan_.dscores + row * score_stride;
    float* dq = memory_ + plan_.dq;
    multiply_strip<Into::overwrite>(dscores, Constant<score_stride>{}, 1, memory_ + plan_.key_rows, stride_, columns,
                                    dq, stride_, head_dim);
    for (std::int64_t r = row; r <= last; ++r, dq += stride_)
      add_rows(dq, 1, 1, head_dim, stride_, 1, call_.dq, task.segment->q_begin + query + r / plan_.group,
               task.kv_head * plan_.group + r % plan_.group);
  }

  /// weights: scores -> 2^(score factor - lse); dscores: d(weights) -> weights (dscores - delta); both 0 in
  /// [count, filled).
  void differentiate_row(float* weights, float* dscores, std::int64_t count, std::int64_t filled, float lse,
                         float delta) const {
    const Floats factor = simd::broadcast(call_.shape.scale * log2_e);
    const auto differentiate = [&](std::int64_t i) {
      const Floats p = exp2_or_zero(simd::fma(simd::load(weights + i), factor, simd::broadcast(-lse)));
      simd::store(weights + i, p);
      simd::store(dscores + i, p * (simd::load(dscores + i) - delta));
    };
    std::int64_t i = 0;
    for (; i + lanes <= count; i += lanes) differentiate(i);
    if (i < count) {
      differentiate(i);
      const simd::Ints inside = simd::first_lanes(count - i);
      simd::store(weights + i, inside ? simd::load(weights + i) : Floats{});
      simd::store(dscores + i, inside ? simd::load(dscores + i) : Floats{});
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
  float* memory_;
};

/// All chains, those with the most waves first.
std::vector<Chain> chains_of(const AttentionBackward& call) {
  std::vector<Chain> chains;
  for (const AttentionSegment& segment : call.segments)
    for (std::int64_t head = 0; head < call.shape.num_kv_heads; ++head)
      if (segment.q_len > 0 && segment.k_len > 0)
        chains.push_back({&segment, head, divide_up(segment.q_len, key_block), divide_up(segment.k_len, key_block)});
  std::stable_sort(chains.begin(), chains.end(), [](const Chain& a, const Chain& b) { return a.waves() > b.waves(); });
  return chains;
}

/// The tiles of one wave in which any query sees any key, the costliest first.
void collect_wave(const std::vector<Chain>& chains, std::int64_t wave, std::vector<BackwardTask>& tasks) {
  tasks.clear();
  for (const Chain& chain : chains) {
    if (wave >= chain.waves()) break;
    const AttentionSegment& segment = *chain.segment;
    const bool by_key = chain.key_tiles <= chain.query_tiles;
    const std::int64_t tiles = by_key ? chain.key_tiles : chain.query_tiles;
    for (std::int64_t tile = 0; tile < tiles; ++tile) {
      const std::int64_t other = (by_key ? tile + wave : tile - wave + chain.waves()) % chain.waves();
      const std::int64_t query = (by_key ? other : tile) * key_block;
      const std::int64_t key = (by_key ? tile : other) * key_block;
      const std::int64_t queries = std::min(key_block, segment.q_len - query);
      const std::int64_t keys = std::min(key_block, visible_keys(segment, query + queries - 1) - key);
      if (keys > 0) tasks.push_back({&segment, chain.kv_head, query, queries, key, keys});
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
  check_inputs(call.shape, call.segments, call.q, call.k, call.v, true);
  check_view("dout", call.dout, call.q.rows(), call.q.cols(), call.q.dtype());
  check_view("lse", call.lse, call.q.rows(), call.shape.num_heads);
  check_view("delta", call.delta, call.q.rows(), call.shape.num_heads);
  check_view("dq", call.dq, call.q.rows(), call.q.cols());
  check_view("dk", call.dk, call.k.rows(), call.k.cols());
  check_view("dv", call.dv, call.k.rows(), call.k.cols());
  const BackwardPlan plan(call.shape);
  const std::vector<Chain> chains = chains_of(call);
  const std::int64_t waves = chains.empty() ? 0 : chains.front().waves();
  float* memory = scratch(plan.floats * omp_get_max_threads());
  std::vector<BackwardTask> tasks;
  with_stride(call.shape.head_dim, [&](auto stride) {
    for (std::int64_t wave = 0; wave < waves; ++wave) {
      collect_wave(chains, wave, tasks);
      const auto count = static_cast<std::int64_t>(tasks.size());
#pragma omp parallel for schedule(dynamic, 1)
      for (std::int64_t i = 0; i < count; ++i) {
        BackwardTile tile(call, plan, stride, memory + omp_get_thread_num() * plan.floats);
        tile.run(tasks[static_cast<std::size_t>(i)]);
      }
    }
  });
}

}  // namespace skrull
