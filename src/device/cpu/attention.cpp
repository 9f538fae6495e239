// Attention row by row: the definition, not fast.

#include "cpu/attention.h"

#include <cmath>
#include <limits>
#include <vector>

#include "cpu/kernel.h"

namespace skrull {

namespace {

float element(const ConstTensorView& view, std::int64_t row, std::int64_t col) {
  return view.dtype() == DType::bfloat16 ? static_cast<float>(row_of<bfloat16>(view, row)[col])
                                         : row_of<float>(view, row)[col];
}

std::int64_t visible_keys(const AttentionSegment& segment, std::int64_t query) {
  if (!segment.causal) return segment.k_len;
  return std::clamp<std::int64_t>(query + segment.k_len - segment.q_len + 1, 0, segment.k_len);
}

float score(const AttentionShape& shape, const ConstTensorView& q, const ConstTensorView& k, std::int64_t q_row,
            std::int64_t k_row, std::int64_t head) {
  const std::int64_t kv_head = head / (shape.num_heads / shape.num_kv_heads);
  float sum = 0;
  for (std::int64_t i = 0; i < shape.head_dim; ++i) {
    sum += element(q, q_row, head * shape.head_dim + i) * element(k, k_row, kv_head * shape.head_dim + i);
  }
  return sum * shape.scale;
}

}  // namespace

void cpu_attention_forward(const AttentionForward& a) {
  const std::int64_t d = a.shape.head_dim;
  const std::int64_t group = a.shape.num_heads / a.shape.num_kv_heads;
  for (const AttentionSegment& segment : a.segments) {
    parallel_ranges(a.shape.num_heads, 8192, [&](std::int64_t first, std::int64_t last) {
      std::vector<float> scores(static_cast<std::size_t>(segment.k_len));
      std::vector<float> out(static_cast<std::size_t>(d));
      for (std::int64_t head = first; head < last; ++head) {
        for (std::int64_t query = 0; query < segment.q_len; ++query) {
          const std::int64_t row = segment.q_begin + query;
          const std::int64_t keys = visible_keys(segment, query);
          float maximum = -std::numeric_limits<float>::infinity();
          for (std::int64_t j = 0; j < keys; ++j) {
            scores[j] = score(a.shape, a.q, a.k, row, segment.k_begin + j, head);
            maximum = std::max(maximum, scores[j]);
          }
          float total = 0;
          std::fill(out.begin(), out.end(), 0.0F);
          for (std::int64_t j = 0; j < keys; ++j) {
            const float p = std::exp(scores[j] - maximum);
            total += p;
            for (std::int64_t i = 0; i < d; ++i) out[i] += p * element(a.v, segment.k_begin + j, head / group * d + i);
          }
          row_of<float>(a.lse, row)[head] =
              keys == 0 ? -std::numeric_limits<float>::infinity() : maximum + std::log(total);
          with_dtype(a.out.dtype(), [&]<class T>(std::type_identity<T>) {
            T* target = row_of<T>(a.out, row) + head * d;
            for (std::int64_t i = 0; i < d; ++i) target[i] = static_cast<T>(keys == 0 ? 0.0F : out[i] / total);
          });
        }
      }
    });
  }
}

void cpu_attention_backward(const AttentionBackward& a) {
  const std::int64_t d = a.shape.head_dim;
  const std::int64_t group = a.shape.num_heads / a.shape.num_kv_heads;
  for (const AttentionSegment& segment : a.segments) {
    parallel_ranges(a.shape.num_kv_heads, 8192, [&](std::int64_t first, std::int64_t last) {
      for (std::int64_t head = first * group; head < last * group; ++head) {
        for (std::int64_t query = 0; query < segment.q_len; ++query) {
          const std::int64_t row = segment.q_begin + query;
          for (std::int64_t j = 0; j < visible_keys(segment, query); ++j) {
            const std::int64_t key = segment.k_begin + j;
            const float p = std::exp(score(a.shape, a.q, a.k, row, key, head) - row_of<float>(a.lse, row)[head]);
            float dp = 0;
            for (std::int64_t i = 0; i < d; ++i)
              dp += element(a.dout, row, head * d + i) * element(a.v, key, head / group * d + i);
            const float ds = p * (dp - row_of<float>(a.delta, row)[head]) * a.shape.scale;
            for (std::int64_t i = 0; i < d; ++i) {
              row_of<float>(a.dq, row)[head * d + i] += ds * element(a.k, key, head / group * d + i);
              row_of<float>(a.dk, key)[head / group * d + i] += ds * element(a.q, row, head * d + i);
              row_of<float>(a.dv, key)[head / group * d + i] += p * element(a.dout, row, head * d + i);
            }
          }
        }
      }
    });
  }
}

void cpu_attention_delta(std::int64_t head_dim, ConstTensorView out, ConstTensorView dout, TensorView delta) {
  parallel_ranges(delta.rows(), out.cols(), [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t row = first; row < last; ++row) {
      for (std::int64_t head = 0; head < delta.cols(); ++head) {
        float sum = 0;
        for (std::int64_t i = head * head_dim; i < (head + 1) * head_dim; ++i)
          sum += element(out, row, i) * element(dout, row, i);
        row_of<float>(delta, row)[head] = sum;
      }
    }
  });
}

void cpu_attention_merge(std::int64_t head_dim, ConstTensorView partial_out, ConstTensorView partial_lse,
                         TensorView out, TensorView lse) {
  parallel_ranges(out.rows(), out.cols(), [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t row = first; row < last; ++row) {
      for (std::int64_t head = 0; head < lse.cols(); ++head) {
        float& old_lse = row_of<float>(lse, row)[head];
        const float new_lse = row_of<float>(partial_lse, row)[head];
        const float maximum = std::max(old_lse, new_lse);
        if (maximum == -std::numeric_limits<float>::infinity()) continue;
        const float old_part = std::exp(old_lse - maximum);
        const float new_part = std::exp(new_lse - maximum);
        const float total = old_part + new_part;
        for (std::int64_t i = head * head_dim; i < (head + 1) * head_dim; ++i) {
          float& value = row_of<float>(out, row)[i];
          value = (value * old_part + row_of<float>(partial_out, row)[i] * new_part) / total;
        }
        old_lse = maximum + std::log(total);
      }
    }
  });
}

}  // namespace skrull
