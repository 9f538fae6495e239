// Rotary position embedding (Su et al. 2021), halves paired as in Hugging Face's Qwen2.

#include <cmath>

#include "cpu/cpu_ops.h"
#include "cpu/kernel.h"
#include "skrull/device/operation_operands.h"

namespace skrull {

void CpuOps::rope_table(Stream& stream, ConstTensorView positions, ConstTensorView inverse_frequency,
                        TensorView table) {
  check_rope_table(positions, inverse_frequency, table);
  const std::int64_t half = inverse_frequency.cols();
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
  check_rope(x, table, head_dim);
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
