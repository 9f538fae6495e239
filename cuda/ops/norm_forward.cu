// RMSNorm, fused with the residual sum.

#include "device/cuda_stream.h"
#include "kernel/reduction.h"
#include "kernel/rows.h"
#include "kernel/vector_access.h"
#include "ops/cuda_ops.h"
#include "ops/norm_shapes.h"
#include "skrull/core/narrow.h"
#include "skrull/device/operation_operands.h"

namespace skrull {

namespace {

template <class T>
struct NormForward {
  Rows<const T> x;
  Rows<const T> delta;  ///< null: x alone is normalised
  const T* weight;
  float epsilon;
  Rows<T> sum;
  Rows<T> y;
  float* inverse_rms;
  std::int64_t width;

  /// x, or x + delta as it was stored.
  template <int n>
  __device__ void read(std::int64_t row, std::int64_t col, float (&values)[n]) const {
    load(x.at(row, col), values);
    if (delta.data == nullptr) return;
    float change[n];
    load(delta.at(row, col), change);
#pragma unroll
    for (int i = 0; i < n; ++i) values[i] = rounded_to<T>(values[i] + change[i]);
    store(sum.at(row, col), values);
  }

  template <int n>
  __device__ void write(std::int64_t row, std::int64_t col, const float (&values)[n], float inverse) const {
    float scale[n];
    load(weight + col, scale);
#pragma unroll
    for (int i = 0; i < n; ++i) scale[i] *= values[i] * inverse;
    store(y.at(row, col), scale);
  }

  template <int threads>
  __device__ float inverse_of(std::int64_t row, float squares) const {
    const float total = block_reduce<threads>(squares, Sum{});
    const float inverse = 1.0F / sqrtf(total / static_cast<float>(width) + epsilon);
    if (threadIdx.x == 0) inverse_rms[row] = inverse;
    return inverse;
  }
};

template <int n>
__device__ float squares_of(const float (&values)[n], float squares) {
#pragma unroll
  for (int i = 0; i < n; ++i) squares = fmaf(values[i], values[i], squares);
  return squares;
}

/// A block has a row and keeps it in registers.
template <class T, int threads>
__global__ void __launch_bounds__(threads) norm_kernel(const NormForward<T> norm) {
  constexpr int n = elements_of_16_bytes<T>;
  const std::int64_t row = blockIdx.x;
  float values[norm_pieces][n];
  float squares = 0;
#pragma unroll
  for (int i = 0; i < norm_pieces; ++i) {
    const std::int64_t col = (i * threads + threadIdx.x) * std::int64_t{n};
    if (col >= norm.width) break;
    norm.read(row, col, values[i]);
  }
#pragma unroll
  for (int i = 0; i < norm_pieces; ++i) {
    if ((i * threads + threadIdx.x) * std::int64_t{n} >= norm.width) break;
    squares = squares_of(values[i], squares);
  }
  const float inverse = norm.template inverse_of<threads>(row, squares);
#pragma unroll
  for (int i = 0; i < norm_pieces; ++i) {
    const std::int64_t col = (i * threads + threadIdx.x) * std::int64_t{n};
    if (col >= norm.width) break;
    norm.write(row, col, values[i], inverse);
  }
}

/// Rows of any width and alignment: read twice.
template <class T>
__global__ void __launch_bounds__(norm_general_threads) general_norm_kernel(const NormForward<T> norm) {
  const std::int64_t row = blockIdx.x;
  float squares = 0;
  for (std::int64_t col = threadIdx.x; col < norm.width; col += norm_general_threads) {
    float value[1];
    norm.read(row, col, value);
    squares = squares_of(value, squares);
  }
  const float inverse = norm.template inverse_of<norm_general_threads>(row, squares);
  const Rows<const T> normalised = norm.delta.data == nullptr ? norm.x : Rows<const T>{norm.sum.data, norm.sum.stride};
  for (std::int64_t col = threadIdx.x; col < norm.width; col += norm_general_threads) {
    const float value[1] = {to_float(*normalised.at(row, col))};
    norm.write(row, col, value, inverse);
  }
}

}  // namespace

void CudaOps::rms_norm_forward(Stream& stream, ConstTensorView x, ConstTensorView delta, ConstTensorView weight,
                               float epsilon, TensorView sum, TensorView y, TensorView inverse_rms) {
  check_rms_norm_forward(x, delta, weight, sum, y, inverse_rms);
  const cudaStream_t queue = cuda_stream(stream);
  const auto rows = narrow<std::int32_t>(x.rows());
  with_element(x.dtype(), [&]<class T>(std::type_identity<T>) {
    constexpr int n = elements_of_16_bytes<T>;
    const NormForward<T> norm{rows_of<T>(x),   rows_of<T>(delta), static_cast<const T*>(weight.data()),    epsilon,
                              rows_of<T>(sum), rows_of<T>(y),     static_cast<float*>(inverse_rms.data()), x.cols()};
    bool aligned = x.cols() % n == 0;
    for (const ConstTensorView& view : {x, delta, weight, ConstTensorView(sum), ConstTensorView(y)}) {
      aligned = aligned && rows_in_pieces_of(n, view);
    }
    const bool in_registers =
        aligned && with_norm_threads(x.cols() / n, [&]<int threads>(NormThreads<threads>) {
          launch(norm_kernel<T, threads>, static_cast<unsigned>(rows), dim3(threads), 0, queue, norm);
        });
    if (in_registers) return;
    launch(general_norm_kernel<T>, static_cast<unsigned>(rows), dim3(norm_general_threads), 0, queue, norm);
  });
}

}  // namespace skrull
