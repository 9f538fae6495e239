#include <cmath>
#include <utility>

#include "cpu/attention.h"
#include "cpu/attention_tiles.h"

namespace skrull {

using namespace attention;

void cpu_attention_delta(std::int64_t head_dim, ConstTensorView out, ConstTensorView dout, TensorView delta) {
  const std::int64_t rows = delta.rows();
  const std::int64_t heads = delta.cols();
  check_attention_delta(head_dim, out, dout, delta);
  with_dtype(out.dtype(), [&](auto out_element) {
    with_dtype(dout.dtype(), [&](auto dout_element) {
      const auto* x = out.as<typename decltype(out_element)::type>();
      const auto* y = dout.as<typename decltype(dout_element)::type>();
      float* result = delta.as<float>();
#pragma omp parallel for schedule(static)
      for (std::int64_t row = 0; row < rows; ++row) {
        for (std::int64_t head = 0; head < heads; ++head) {
          Floats sums{};
          for (std::int64_t i = 0; i < head_dim; i += lanes) {
            const std::int64_t column = head * head_dim + i;
            sums = simd::fma(simd::load_first(x + row * out.row_stride() + column, head_dim - i),
                             simd::load_first(y + row * dout.row_stride() + column, head_dim - i), sums);
          }
          result[row * delta.row_stride() + head] = simd::sum(sums);
        }
      }
    });
  });
}

void cpu_attention_merge(std::int64_t head_dim, ConstTensorView partial_out, ConstTensorView partial_lse,
                         TensorView out, TensorView lse) {
  const std::int64_t rows = lse.rows();
  const std::int64_t heads = lse.cols();
  check_attention_merge(head_dim, partial_out, partial_lse, out, lse);
  const float* from_lse = partial_lse.as<float>();
  const float* from_out = partial_out.as<float>();
  float* into_lse = lse.as<float>();
  float* into_out = out.as<float>();
#pragma omp parallel for schedule(static)
  for (std::int64_t row = 0; row < rows; ++row) {
    for (std::int64_t head = 0; head < heads; ++head) {
      float& joined = into_lse[row * lse.row_stride() + head];
      const double b = from_lse[row * partial_lse.row_stride() + head];
      const double a = joined;
      if (std::isinf(b) && b < 0) continue;
      // Shifted by the larger one: one weight is 1, the other at most 1; a = -infinity weighs 0.
      const double shift = std::max(a, b);
      const double weight_a = std::exp(a - shift);
      const double weight_b = std::exp(b - shift);
      const double total = weight_a + weight_b;
      joined = static_cast<float>(shift + std::log(total));
      const Floats keep = simd::broadcast(static_cast<float>(weight_a / total));
      const Floats take = simd::broadcast(static_cast<float>(weight_b / total));
      for (std::int64_t i = 0; i < head_dim; i += lanes) {
        const std::int64_t count = head_dim - i;
        float* target = into_out + row * out.row_stride() + head * head_dim + i;
        const Floats partial = simd::load_first(from_out + row * partial_out.row_stride() + head * head_dim + i, count);
        simd::store_first(target, simd::fma(partial, take, simd::load_first(target, count) * keep), count);
      }
    }
  }
}

std::int64_t cpu_attention_scratch_bytes(const AttentionShape& shape) {
  return std::max(forward_scratch_floats(shape), backward_scratch_floats(shape)) * std::int64_t{sizeof(float)};
}

}  // namespace skrull
