// The optimizer's update and the norm it is clipped by.

#include <cmath>
#include <vector>

#include "cpu/cpu_ops.h"
#include "cpu/kernel.h"
#include "skrull/device/operation_operands.h"

namespace skrull {

namespace {

/// Sum of squares in fp64.
template <class T>
double squares_in_double(const T* x, std::int64_t count) {
  using Doubles = double __attribute__((vector_size(2 * sizeof(simd::Floats))));
  constexpr std::int64_t chains = 2;  // sums that do not wait for each other
  Doubles sums[chains] = {};
  for_each_vector(count, [&](std::int64_t i, auto size) {
    const auto value = __builtin_convertvector(simd::load_first(x + i, size), Doubles);
    sums[i / simd::lanes % chains] += value * value;
  });
  const Doubles both = sums[0] + sums[1];
  double sum = 0;
  for (int lane = 0; lane < simd::lanes; ++lane) sum += both[lane];
  return sum;
}

}  // namespace

void CpuOps::adamw(Stream& stream, const AdamW& adamw) {
  check_adamw(adamw);
  const AdamW a = adamw;
  const std::int64_t count = a.parameter.cols();
  const bool has_copy = static_cast<bool>(a.compute_copy);
  run(stream, [=] {
    // Coefficients in fp64 and the elements in fp32, in the order of torch.optim.AdamW.
    const auto steps = static_cast<double>(a.step);
    const auto decay = static_cast<float>(1.0 - a.learning_rate * a.weight_decay);
    const auto step_size = static_cast<float>(a.learning_rate / (1.0 - std::pow(a.beta1, steps)));
    const auto root_correction = static_cast<float>(std::sqrt(1.0 - std::pow(a.beta2, steps)));
    const auto new_share1 = static_cast<float>(1.0 - a.beta1);
    const auto new_share2 = static_cast<float>(1.0 - a.beta2);
    const auto beta2 = static_cast<float>(a.beta2);
    const auto epsilon = static_cast<float>(a.epsilon);
    const auto gradient_scale = static_cast<float>(a.gradient_scale);
    float* parameter = row_of<float>(a.parameter, 0);
    const float* gradient = row_of<float>(a.gradient, 0);
    float* first = row_of<float>(a.first_moment, 0);
    float* second = row_of<float>(a.second_moment, 0);
    with_dtype(has_copy ? a.compute_copy.dtype() : DType::float32, [&]<class T>(std::type_identity<T>) {
      T* copy = has_copy ? row_of<T>(a.compute_copy, 0) : nullptr;
      parallel_elements(1, count, true, [&](std::int64_t, std::int64_t begin, std::int64_t end) {
        for_each_vector(end - begin, [&](std::int64_t offset, auto size) {
          const std::int64_t i = begin + offset;
          const simd::Floats g = simd::load_first(gradient + i, size) * gradient_scale;
          simd::Floats m = simd::load_first(first + i, size);
          simd::Floats v = simd::load_first(second + i, size);
          simd::Floats p = simd::load_first(parameter + i, size);
          m += new_share1 * (g - m);
          v = beta2 * v + new_share2 * g * g;
          p = decay * p - step_size * (m / (simd::sqrt(v) / root_correction + epsilon));
          simd::store_first(first + i, m, size);
          simd::store_first(second + i, v, size);
          simd::store_first(parameter + i, p, size);
          if (copy != nullptr) simd::store_first(copy + i, p, size);
        });
      });
    });
  });
}

void CpuOps::sum_of_squares(Stream& stream, ConstTensorView x, TensorView result) {
  check_sum_of_squares(x, result);
  run(stream, [=] {
    // Blocks of a fixed size, added in their order: the result does not depend on the number of threads.
    constexpr std::int64_t block = 32768;
    const std::int64_t rows = x.contiguous() ? std::min<std::int64_t>(1, x.elements()) : x.rows();
    const std::int64_t cols = x.contiguous() ? x.elements() : x.cols();
    const std::int64_t row_blocks = (cols + block - 1) / block;
    std::vector<double> partial(static_cast<std::size_t>(rows * row_blocks));
    with_dtype(x.dtype(), [&]<class T>(std::type_identity<T>) {
      parallel_ranges(rows * row_blocks, std::min(cols, block), [&](std::int64_t first, std::int64_t last) {
        for (std::int64_t i = first; i < last; ++i) {
          const T* values = row_of<T>(x, i / row_blocks);
          const std::int64_t begin = i % row_blocks * block;
          const std::int64_t end = std::min(cols, begin + block);
          partial[static_cast<std::size_t>(i)] = squares_in_double(values + begin, end - begin);
        }
      });
    });
    double sum = 0;
    for (const double value : partial) sum += value;
    *static_cast<double*>(result.data()) += sum;
  });
}

}  // namespace skrull
