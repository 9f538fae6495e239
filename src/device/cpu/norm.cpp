// RMSNorm, and sums over the rows of a matrix (bias and norm weight gradients).

#include <cmath>
#include <vector>

#include "cpu/cpu_ops.h"
#include "cpu/kernel.h"
#include "skrull/device/operation_operands.h"

namespace skrull {

namespace {

/// out[j] += sum over rows of what add_row(row, partial) adds to partial[j]. Rows are cut into blocks whose size does
/// not depend on the number of threads; a block is summed in row order, the blocks in block order.
template <class AddRow>
void add_column_sums(std::int64_t rows, std::int64_t cols, float* out, const AddRow& add_row) {
  constexpr std::int64_t most_blocks = 64;
  constexpr std::int64_t fewest_rows = 16;
  if (rows == 0 || cols == 0) return;
  const std::int64_t block_rows = std::max(fewest_rows, (rows + most_blocks - 1) / most_blocks);
  const std::int64_t blocks = (rows + block_rows - 1) / block_rows;
  std::vector<float> partial(static_cast<std::size_t>(blocks * cols));
  parallel_ranges(blocks, block_rows * cols, [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t block = first; block < last; ++block) {
      const std::int64_t end = std::min(rows, (block + 1) * block_rows);
      for (std::int64_t row = block * block_rows; row < end; ++row) add_row(row, partial.data() + block * cols);
    }
  });
  parallel_elements(1, cols, true, [&](std::int64_t, std::int64_t begin, std::int64_t end) {
    for (std::int64_t block = 0; block < blocks; ++block) {
      const float* sums = partial.data() + block * cols;
      for (std::int64_t j = begin; j < end; ++j) out[j] += sums[j];
    }
  });
}

template <class T>
void add_rows(const T* a, const T* b, std::int64_t count, T* sum) {
  for_each_vector(count, [&](std::int64_t i, auto size) {
    simd::store_first(sum + i, simd::load_first(a + i, size) + simd::load_first(b + i, size), size);
  });
}

template <class T>
float squared_norm(const T* x, std::int64_t count) {
  simd::Floats squares{};
  for_each_vector(count, [&](std::int64_t i, auto size) {
    const simd::Floats value = simd::load_first(x + i, size);
    squares += value * value;
  });
  return simd::sum(squares);
}

}  // namespace

void CpuOps::bias_backward(Stream& stream, ConstTensorView dy, TensorView dbias) {
  check_bias_backward(dy, dbias);
  run(stream, [=] {
    with_dtype(dy.dtype(), [&]<class T>(std::type_identity<T>) {
      add_column_sums(dy.rows(), dy.cols(), row_of<float>(dbias, 0), [&](std::int64_t row, float* partial) {
        const T* values = row_of<T>(dy, row);
        for (std::int64_t j = 0; j < dy.cols(); ++j) partial[j] += static_cast<float>(values[j]);
      });
    });
  });
}

void CpuOps::rms_norm_forward(Stream& stream, ConstTensorView x, ConstTensorView delta, ConstTensorView weight,
                              float epsilon, TensorView sum, TensorView y, TensorView inverse_rms) {
  check_rms_norm_forward(x, delta, weight, sum, y, inverse_rms);
  const bool has_delta = static_cast<bool>(delta);
  run(stream, [=] {
    with_dtype(x.dtype(), [&]<class T>(std::type_identity<T>) {
      const std::int64_t width = x.cols();
      const T* scale = row_of<T>(weight, 0);
      parallel_ranges(x.rows(), 2 * width, [&](std::int64_t first, std::int64_t last) {
        for (std::int64_t t = first; t < last; ++t) {
          const T* values = row_of<T>(x, t);
          if (has_delta) {
            T* total = row_of<T>(sum, t);
            add_rows(values, row_of<T>(delta, t), width, total);
            values = total;
          }
          const float mean = squared_norm(values, width) / static_cast<float>(width);
          const float inverse = 1.0F / std::sqrt(mean + epsilon);
          row_of<float>(inverse_rms, 0)[t] = inverse;
          T* out = row_of<T>(y, t);
          for_each_vector(width, [&](std::int64_t i, auto size) {
            simd::store_first(out + i, simd::load_first(values + i, size) * inverse * simd::load_first(scale + i, size),
                              size);
          });
        }
      });
    });
  });
}

// With r = inverse_rms and x^ = r x: dweight = sum over rows of dy x^, dx = r (dy w - x^ mean(dy w x^)).
void CpuOps::rms_norm_backward(Stream& stream, ConstTensorView dy, ConstTensorView x, ConstTensorView weight,
                               ConstTensorView inverse_rms, TensorView dx, TensorView dweight) {
  check_rms_norm_backward(dy, x, weight, inverse_rms, dx, dweight);
  run(stream, [=] {
    with_dtype(x.dtype(), [&]<class T>(std::type_identity<T>) {
      const std::int64_t width = x.cols();
      const T* scale = row_of<T>(weight, 0);
      add_column_sums(x.rows(), width, row_of<float>(dweight, 0), [&](std::int64_t t, float* partial) {
        const T* values = row_of<T>(x, t);
        const T* gradient = row_of<T>(dy, t);
        T* out = row_of<T>(dx, t);
        const float inverse = row_of<float>(inverse_rms, 0)[t];
        simd::Floats products{};
        for_each_vector(width, [&](std::int64_t i, auto size) {
          const simd::Floats share = simd::load_first(gradient + i, size) * simd::load_first(values + i, size);
          products += share * simd::load_first(scale + i, size);
          simd::store_first(partial + i, simd::load_first(partial + i, size) + share * inverse, size);
        });
        const float mean = simd::sum(products) * inverse * inverse / static_cast<float>(width);
        for_each_vector(width, [&](std::int64_t i, auto size) {
          const simd::Floats change = simd::load_first(gradient + i, size) * simd::load_first(scale + i, size) -
                                      simd::load_first(values + i, size) * mean;
          simd::store_first(out + i, simd::load_first(out + i, size) + change * inverse, size);
        });
      });
    });
  });
}

}  // namespace skrull
