// Rotary position embedding (Su et al. 2021), halves paired as in Hugging Face's Qwen2.

#include <cmath>

#include "cpu/cpu_ops.h"
#include "cpu/kernel.h"

namespace skrull {

void CpuOps::rope_table(Stream& stream, ConstTensorView positions, ConstTensorView inverse_frequency,
                        TensorView table) {
  const std::int64_t half = inverse_frequency.cols();
  check_dtype("rope_table", "positions", positions, DType::int32);
  check_shape("rope_table", "inverse_frequency", inverse_frequency, 1, half);
  check_dtype("rope_table", "inverse_frequency", inverse_frequency, DType::float32);
  check_dtype("rope_table", "table", table, DType::float32);
  check_shape("rope_table", "positions", positions, 1, table.rows());
  check_shape("rope_table", "table", table, table.rows(), 2 * half);
  run(stream, [=] {
    const auto* position = static_cast<const std::int32_t*>(positions.data());
    const float* frequency = row_of<float>(inverse_frequency, 0);
    parallel_ranges(table.rows(), 64 * half, [&](std::int64_t first, std::int64_t last) {
      for (std::int64_t t = first; t < last; ++t) {
        float* cosines = row_of<float>(table, t);
        float* sines = cosines + half;
        for (std::int64_t i = 0; i < half; ++i) {
          const double angle = static_cast<double>(position[t]) * static_cast<double>(frequency[i]);
          cosines[i] = static_cast<float>(std::cos(angle));
          sines[i] = static_cast<float>(std::sin(angle));
        }
      }
    });
  });
}

void CpuOps::rope(Stream& stream, TensorView x, ConstTensorView table, std::int64_t head_dim, bool inverse) {
  require(head_dim > 0 && head_dim % 2 == 0 && x.cols() % head_dim == 0,
          "rope: {} columns and head size {}, expected whole heads of an even size", x.cols(), head_dim);
  check_computable("rope", "x", x);
  check_shape("rope", "table", table, x.rows(), head_dim);
  check_dtype("rope", "table", table, DType::float32);
  run(stream, [=] {
    with_dtype(x.dtype(), [&]<class T>(std::type_identity<T>) {
      const std::int64_t half = head_dim / 2;
      const float direction = inverse ? -1.0F : 1.0F;
      parallel_ranges(x.rows(), x.cols(), [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t t = begin; t < end; ++t) {
          const float* cosines = row_of<float>(table, t);
          const float* sines = cosines + half;
          for (T* head = row_of<T>(x, t); head < row_of<T>(x, t) + x.cols(); head += head_dim) {
            T* upper = head + half;
            for_each_vector(half, [&](std::int64_t i, auto size) {
              const simd::Floats a = simd::load_first(head + i, size);
              const simd::Floats b = simd::load_first(upper + i, size);
              const simd::Floats cosine = simd::load_first(cosines + i, size);
              const simd::Floats sine = direction * simd::load_first(sines + i, size);
              simd::store_first(head + i, a * cosine - b * sine, size);
              simd::store_first(upper + i, b * cosine + a * sine, size);
            });
          }
        }
      });
    });
  });
}

}  // namespace skrull
