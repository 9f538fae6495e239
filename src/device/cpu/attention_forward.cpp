#include <omp.h>

#include <cmath>
#include <limits>
#include <vector>

#include "cpu/attention.h"
#include "cpu/attention_tiles.h"

namespace skrull {

namespace attention {

namespace {

constexpr float minus_infinity = -std::numeric_limits<float>::infinity();

/// One unit of work: a tile of query rows of one segment under one key-value head, against all keys they see.
struct ForwardTask {
  const AttentionSegment* segment;
  std::int64_t kv_head;
  std::int64_t query;    ///< first query row in the segment
  std::int64_t queries;  ///< at most ForwardPlan::queries
};

/// Sizes of a tile and where its parts lie in a thread's scratch memory, in floats.
struct ForwardPlan {
  explicit ForwardPlan(const AttentionShape& shape)
      : group(shape.num_heads / shape.num_kv_heads),
        queries(tile_queries(group)),
        rows(queries * group),
        stride(packed_stride(shape.head_dim)),
        q(0),
        out(q + rows * stride),
        keys(out + rows * stride),
        values(keys + key_block * shape.head_dim),
        scores(values + key_block * stride),
        maxima(scores + strip_rows * score_stride),
        sums(maxima + rows),
        floats(round_up(sums + rows, lanes)) {}

  std::int64_t group, queries, rows, stride;
  std::int64_t q;       ///< [rows, stride]
  std::int64_t out;     ///< [rows, stride], not yet divided by the sums
  std::int64_t keys;    ///< panels of pack_transposed()
  std::int64_t values;  ///< [key_block, stride]
  std::int64_t scores;  ///< [strip_rows, score_stride]
  std::int64_t maxima;  ///< [rows]: largest score so far, in units of log2
  std::int64_t sums;    ///< [rows]: sum of 2^(score - maximum) so far
  std::int64_t floats;  ///< of all
};

float row_maximum(const float* scores, std::int64_t count) {
  Floats largest = simd::broadcast(minus_infinity);
  std::int64_t i = 0;
  for (; i + lanes <= count; i += lanes) largest = simd::max(simd::load(scores + i), largest);
  if (i < count) largest = simd::max(simd::first_lanes(count - i) ? simd::load(scores + i) : largest, largest);
  return simd::maximum(largest);
}

/// scores[i] = 2^(scores[i] factor - shift) for i < count, 0 up to `columns`; returns their sum.
float exponentials(float* scores, std::int64_t count, std::int64_t columns, float factor, float shift) {
  Floats sums{};
  std::int64_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    const Floats p = exp2_or_zero(simd::fma(simd::load(scores + i), simd::broadcast(factor), simd::broadcast(-shift)));
    simd::store(scores + i, p);
    sums += p;
  }
  for (; i < columns; i += lanes) {
    Floats p = exp2_or_zero(simd::fma(simd::load(scores + i), simd::broadcast(factor), simd::broadcast(-shift)));
    p = simd::first_lanes(count - i) ? p : Floats{};
    simd::store(scores + i, p);
    sums += p;
  }
  return simd::sum(sums);
}

template <class Stride>
class ForwardTile {
 public:
  ForwardTile(const AttentionForward& call, const ForwardPlan& plan, Stride stride, float* memory)
      : call_(call), plan_(plan), stride_(stride), memory_(memory) {}

  void run(const ForwardTask& task) {
    const AttentionSegment& segment = *task.segment;
    const std::int64_t head_dim = call_.shape.head_dim;
    const std::int64_t rows = task.queries * plan_.group;
    const std::int64_t padded_rows = round_up(rows, strip_rows);
    float* q = memory_ + plan_.q;
    pack_rows(call_.q, segment.q_begin + task.query, task.queries, task.kv_head * plan_.group, plan_.group, head_dim,
              stride_, 1, q);
    std::fill(q + rows * stride_, q + padded_rows * stride_, 0.0F);
    std::fill_n(memory_ + plan_.out, padded_rows * stride_, 0.0F);
    std::fill_n(memory_ + plan_.maxima, padded_rows, minus_infinity);
    std::fill_n(memory_ + plan_.sums, padded_rows, 0.0F);

    const std::int64_t seen = visible_keys(segment, task.query + task.queries - 1);
    for (std::int64_t key = 0; key < seen; key += key_block) {
      const std::int64_t keys = std::min(key_block, seen - key);
      pack_transposed(call_.k, segment.k_begin + key, keys, task.kv_head, head_dim, memory_ + plan_.keys);
      pack_rows(call_.v, segment.k_begin + key, keys, task.kv_head, 1, head_dim, stride_, 1, memory_ + plan_.values);
      for (std::int64_t row = 0; row < rows; row += strip_rows) add_keys(task, row, rows, key, keys);
    }
    finish(task);
  }

 private:
  /// Keys [key, key + keys) for the rows of one strip.
  void add_keys(const ForwardTask& task, std::int64_t row, std::int64_t rows, std::int64_t key, std::int64_t keys) {
    const auto visible = [&](std::int64_t r) {
      return r < rows
                 ? std::clamp<std::int64_t>(visible_keys(*task.segment, task.query + r / plan_.group) - key, 0, keys)
                 : 0;
    };
    const std::int64_t columns = visible(std::min(row + strip_rows, rows) - 1);
    if (columns == 0) return;
    float* scores = memory_ + plan_.scores;
    multiply_transposed(memory_ + plan_.q + row * stride_, stride_, memory_ + plan_.keys, call_.shape.head_dim, columns,
                        scores);
    float corrections[strip_rows];
    for (int r = 0; r < strip_rows; ++r)
      corrections[r] = softmax_row(scores + r * score_stride, row + r, visible(row + r), columns);
    multiply_strip<Into::scale_and_add>(scores, Constant<score_stride>{}, 1, memory_ + plan_.values, stride_, columns,
                                        memory_ + plan_.out + row * stride_, stride_, call_.shape.head_dim,
                                        corrections);
  }

  /// Turns scores into weights under the new maximum; returns the factor for what was summed under the old one.
  float softmax_row(float* scores, std::int64_t row, std::int64_t count, std::int64_t columns) {
    float& maximum = memory_[plan_.maxima + row];
    float& sum = memory_[plan_.sums + row];
    const float factor = call_.shape.scale * log2_e;
    const float old = maximum;
    maximum = std::max(old, count > 0 ? row_maximum(scores, count) * factor : minus_infinity);
    const float shift = maximum == minus_infinity ? 0 : maximum;
    const float correction = std::exp2(old - shift);
    sum = sum * correction + exponentials(scores, count, columns, factor, shift);
    return correction;
  }

  void finish(const ForwardTask& task) {
    const std::int64_t head_dim = call_.shape.head_dim;
    float* lse = call_.lse.as<float>();
    std::int64_t row = 0;
    for (std::int64_t i = 0; i < task.queries; ++i) {
      const std::int64_t token = task.segment->q_begin + task.query + i;
      for (std::int64_t h = task.kv_head * plan_.group; h < (task.kv_head + 1) * plan_.group; ++h, ++row) {
        const float sum = memory_[plan_.sums + row];
        const double log_sum = memory_[plan_.maxima + row] * (1 / 1.4426950408889634) + std::log(double{sum});
        lse[token * call_.lse.row_stride() + h] = static_cast<float>(log_sum);
        const Floats inverse = simd::broadcast(sum > 0 ? 1 / sum : 0);
        const float* source = memory_ + plan_.out + row * stride_;
        with_dtype(call_.out.dtype(), [&](auto element) {
          auto* target =
              call_.out.as<typename decltype(element)::type>() + token * call_.out.row_stride() + h * head_dim;
          for (std::int64_t c = 0; c < head_dim; c += lanes)
            simd::store_first(target + c, simd::load(source + c) * inverse, head_dim - c);
        });
      }
    }
  }

  const AttentionForward& call_;
  const ForwardPlan& plan_;
  Stride stride_;
  float* memory_;
};

/// All tiles, the costliest first.
std::vector<ForwardTask> forward_tasks(const AttentionForward& call, const ForwardPlan& plan) {
  std::vector<ForwardTask> tasks;
  for (const AttentionSegment& segment : call.segments)
    for (std::int64_t query = 0; query < segment.q_len; query += plan.queries)
      for (std::int64_t head = 0; head < call.shape.num_kv_heads; ++head)
        tasks.push_back({&segment, head, query, std::min(plan.queries, segment.q_len - query)});
  const auto cost = [](const ForwardTask& task) {
    return task.queries * (visible_keys(*task.segment, task.query + task.queries - 1) + 1);
  };
  std::stable_sort(tasks.begin(), tasks.end(),
                   [&](const ForwardTask& a, const ForwardTask& b) { return cost(a) > cost(b); });
  return tasks;
}

}  // namespace

std::int64_t forward_scratch_floats(const AttentionShape& shape) {
  return ForwardPlan(shape).floats;
}

}  // namespace attention

void cpu_attention_forward(const AttentionForward& call) {
  using namespace attention;
  check_attention_forward(call);
  const ForwardPlan plan(call.shape);
  const std::vector<ForwardTask> tasks = forward_tasks(call, plan);
  const auto count = static_cast<std::int64_t>(tasks.size());
  float* memory = scratch(plan.floats * omp_get_max_threads());
  with_stride(call.shape.head_dim, [&](auto stride) {
#pragma omp parallel for schedule(dynamic, 1)
    for (std::int64_t i = 0; i < count; ++i) {
      ForwardTile tile(call, plan, stride, memory + omp_get_thread_num() * plan.floats);
      tile.run(tasks[static_cast<std::size_t>(i)]);
    }
  });
}

}  // namespace skrull
