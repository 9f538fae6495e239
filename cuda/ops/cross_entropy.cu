// Cross-entropy of rows of logits, with its gradient: a block has a row, reads it once for the sum of exponentials and
// once for the gradient.

#include "device/cuda_stream.h"
#include "kernel/reduction.h"
#include "kernel/rows.h"
#include "kernel/vector_access.h"
#include "ops/cuda_ops.h"
#include "skrull/core/narrow.h"
#include "skrull/device/operation_operands.h"

namespace skrull {

namespace {

constexpr int threads = 512;
constexpr int pieces_at_once = 4;

/// sum of exp(x - maximum), and the maximum.
struct ExponentialSum {
  float maximum;
  float sum;

  /// Minus infinity so far: a shift by it would make NaN of terms that are 0.
  __device__ static float shift_of(float maximum) { return maximum == -INFINITY ? 0.0F : maximum; }

  template <int count>
  __device__ void add(const float (&values)[count]) {
    float largest = maximum;
#pragma unroll
    for (int i = 0; i < count; ++i) largest = fmaxf(largest, values[i]);
    const float shift = shift_of(largest);
    if (largest > maximum) {
      sum *= expf(maximum - shift);
      maximum = largest;
    }
#pragma unroll
    for (int i = 0; i < count; ++i) sum += expf(values[i] - shift);
  }
};

struct JoinSums {
  __device__ ExponentialSum operator()(const ExponentialSum& a, const ExponentialSum& b) const {
    const float maximum = fmaxf(a.maximum, b.maximum);
    const float shift = ExponentialSum::shift_of(maximum);
    return {maximum, a.sum * expf(a.maximum - shift) + b.sum * expf(b.maximum - shift)};
  }
};

__device__ ExponentialSum row_sum(ExponentialSum mine) {
#pragma unroll
  for (int distance = warp_threads / 2; distance > 0; distance /= 2) {
    const ExponentialSum other{__shfl_xor_sync(0xFFFFFFFFU, mine.maximum, distance),
                               __shfl_xor_sync(0xFFFFFFFFU, mine.sum, distance)};
    mine = JoinSums{}(mine, other);
  }
  return combine_warps<threads>(mine, JoinSums{});
}

template <class T>
struct LossRows {
  Rows<const float> logits;
  const std::int32_t* labels;
  const float* weights;
  float* losses;
  Rows<T> gradient;  ///< null: the loss alone; may be the logits
  std::int64_t classes;
};

/// n: elements of an access.
template <class T, int n>
__global__ void __launch_bounds__(threads) cross_entropy_kernel(const LossRows<T> rows) {
  const std::int64_t row = blockIdx.x;
  const int label = rows.labels[row];
  constexpr std::int64_t step = threads * n;
  const std::int64_t first = static_cast<std::int64_t>(threadIdx.x) * n;
  if (label < 0) {
    if (threadIdx.x == 0) rows.losses[row] = 0;
    if (rows.gradient.data == nullptr) return;
    const float zeros[n] = {};
    for (std::int64_t col = first; col < rows.classes; col += step) store(rows.gradient.at(row, col), zeros);
    return;
  }

  ExponentialSum mine{-INFINITY, 0};
  std::int64_t col = first;
  for (; col + (pieces_at_once - 1) * step < rows.classes; col += pieces_at_once * step) {
    float values[pieces_at_once][n];
#pragma unroll
    for (int i = 0; i < pieces_at_once; ++i) load(rows.logits.at(row, col + i * step), values[i]);
#pragma unroll
    for (int i = 0; i < pieces_at_once; ++i) mine.add(values[i]);
  }
  for (; col < rows.classes; col += step) {
    float values[n];
    load(rows.logits.at(row, col), values);
    mine.add(values);
  }
  const float at_label = *rows.logits.at(row, label);
  const ExponentialSum total = row_sum(mine);  // a barrier: from here on the gradient may overwrite the logits
  if (threadIdx.x == 0) rows.losses[row] = total.maximum - at_label + logf(total.sum);
  if (rows.gradient.data == nullptr) return;

  const float weight = rows.weights[row];
  const float factor = weight / total.sum;
#pragma unroll 4
  for (col = first; col < rows.classes; col += step) {
    float values[n];
    load(rows.logits.at(row, col), values);
#pragma unroll
    for (int i = 0; i < n; ++i) {
      values[i] = expf(values[i] - total.maximum) * factor;
      if (col + i == label) values[i] -= weight;
    }
    store(rows.gradient.at(row, col), values);
  }
}

}  // namespace

void CudaOps::cross_entropy(Stream& stream, const CrossEntropy& c) {
  check_cross_entropy(c);
  const bool has_gradient = static_cast<bool>(c.gradient);
  constexpr int width = 4;
  const bool aligned = c.logits.cols() % width == 0 && rows_in_pieces_of(width, c.logits) &&
                       (!has_gradient || rows_in_pieces_of(width, c.gradient));
  const auto tokens = static_cast<unsigned>(narrow<std::int32_t>(c.logits.rows()));
  with_element(has_gradient ? c.gradient.dtype() : DType::float32, [&]<class T>(std::type_identity<T>) {
    const LossRows<T> rows{rows_of<float>(ConstTensorView(c.logits)),
                           static_cast<const std::int32_t*>(c.labels.data()),
                           static_cast<const float*>(c.weights.data()),
                           static_cast<float*>(c.losses.data()),
                           rows_of<T>(c.gradient),
                           c.logits.cols()};
    launch(aligned ? cross_entropy_kernel<T, width> : cross_entropy_kernel<T, 1>, tokens, dim3(threads), 0,
           cuda_stream(stream), rows);
  });
}

}  // namespace skrull
