// Sums over a matrix: of its rows (the gradient of a bias), and of all squares.

#include <algorithm>

#include "device/cuda_stream.h"
#include "kernel/reduction.h"
#include "kernel/rows.h"
#include "kernel/vector_access.h"
#include "ops/column_sums.h"
#include "ops/cuda_ops.h"
#include "skrull/core/narrow.h"
#include "skrull/device/operation_operands.h"

namespace skrull {

namespace {

constexpr int threads = 256;
constexpr int warps = threads / warp_threads;

/// A block sums a range of rows of 32 n columns: a lane has n of them, each warp takes every 8th row, and the warps'
/// sums are added in order.
template <class T, int n>
__global__ void __launch_bounds__(threads) bias_kernel(const Rows<const T> dy, const std::int64_t rows,
                                                       const std::int64_t block_rows, const PartialSums partial) {
  SHARED_ARRAY(float, sums, threads* n);
  const int lane = static_cast<int>(threadIdx.x) % warp_threads;
  const int warp = static_cast<int>(threadIdx.x) / warp_threads;
  const std::int64_t col = (std::int64_t{blockIdx.x} * warp_threads + lane) * n;
  const std::int64_t begin = blockIdx.y * block_rows;
  const std::int64_t end = min(rows, begin + block_rows);
  float sum[n] = {};
  if (col < partial.cols) {
#pragma unroll 4
    for (std::int64_t row = begin + warp; row < end; row += warps) {
      float values[n];
      load(dy.at(row, col), values);
#pragma unroll
      for (int i = 0; i < n; ++i) sum[i] += values[i];
    }
  }
#pragma unroll
  for (int i = 0; i < n; ++i) sums[i * threads + threadIdx.x] = sum[i];
  __syncthreads();
  if (warp != 0 || col >= partial.cols) return;
#pragma unroll
  for (int i = 0; i < n; ++i) {
#pragma unroll
    for (int other = 1; other < warps; ++other) sum[i] += sums[i * threads + other * warp_threads + lane];
    partial.data[blockIdx.y * partial.cols + col + i] = sum[i];
  }
}

template <class T, int n>
void launch_bias(cudaStream_t stream, const ConstTensorView& dy, std::int64_t block_rows, const PartialSums& partial) {
  constexpr std::int64_t columns_of_block = warp_threads * n;
  const dim3 grid(static_cast<unsigned>(narrow<std::int32_t>((dy.cols() + columns_of_block - 1) / columns_of_block)),
                  static_cast<unsigned>(narrow<std::int32_t>(partial.count)));
  launch(bias_kernel<T, n>, grid, dim3(threads), 0, stream, rows_of<T>(dy), dy.rows(), block_rows, partial);
}

/// Squares of pieces of n elements, numbered row by row, in fp64; block b takes every gridDim-th piece of each thread.
/// Pieces that are not aligned are read by elements and added in the same order: the sum of what a rank owns must not
/// depend on where it lies.
template <class T, int n, bool aligned>
__global__ void __launch_bounds__(threads) squares_kernel(const Rows<const T> x, const std::int64_t pieces_in_row,
                                                          const std::int64_t pieces, double* partial) {
  double sum = 0;
  const std::int64_t step = std::int64_t{gridDim.x} * threads;
#pragma unroll 4
  for (std::int64_t piece = std::int64_t{blockIdx.x} * threads + threadIdx.x; piece < pieces; piece += step) {
    const std::int64_t row = pieces == pieces_in_row ? 0 : piece / pieces_in_row;
    const T* const place = x.at(row, (piece - row * pieces_in_row) * n);
    float values[n];
    if constexpr (aligned) {
      load(place, values);
    } else {
#pragma unroll
      for (int i = 0; i < n; ++i) values[i] = to_float(place[i]);
    }
#pragma unroll
    for (int i = 0; i < n; ++i) sum += static_cast<double>(values[i]) * static_cast<double>(values[i]);
  }
  sum = block_reduce<threads>(sum, Sum{});
  if (threadIdx.x == 0) partial[blockIdx.x] = sum;
}

/// result += the partial sums, in an order that depends on their number alone.
__global__ void __launch_bounds__(threads) add_squares_kernel(const double* partial, const int count, double* result) {
  double sum = 0;
  for (int i = static_cast<int>(threadIdx.x); i < count; i += threads) sum += partial[i];
  sum = block_reduce<threads>(sum, Sum{});
  if (threadIdx.x == 0) *result += sum;
}

template <class T, int n>
void launch_squares(cudaStream_t stream, const ConstTensorView& x, MatrixSize size, unsigned blocks, double* partial) {
  const auto kernel = rows_in_pieces_of(n, x) ? squares_kernel<T, n, true> : squares_kernel<T, n, n == 1>;
  launch(kernel, blocks, dim3(threads), 0, stream, rows_of<T>(x), size.cols / n, size.rows * (size.cols / n), partial);
}

}  // namespace

void CudaOps::bias_backward(Stream& stream, ConstTensorView dy, TensorView dbias) {
  check_bias_backward(dy, dbias);
  if (dy.empty()) return;
  // Blocks of rows that depend on the shape alone; enough of them to fill a GPU also when there are few columns.
  constexpr std::int64_t most_blocks = 256;
  constexpr std::int64_t fewest_rows = 32;
  const std::int64_t block_rows = std::max(fewest_rows, (dy.rows() + most_blocks - 1) / most_blocks);
  PartialSums partial{nullptr, (dy.rows() + block_rows - 1) / block_rows, dy.cols()};
  partial.data = static_cast<float*>(
      scratch_.get(stream, partial.count * partial.cols * static_cast<std::int64_t>(sizeof(float))));
  const cudaStream_t queue = cuda_stream(stream);
  with_element(dy.dtype(), [&]<class T>(std::type_identity<T>) {
    constexpr int width = elements_of_16_bytes<T>;
    if (rows_in_pieces_of(width, dy) && dy.cols() % width == 0) {
      launch_bias<T, width>(queue, dy, block_rows, partial);
    } else {
      launch_bias<T, 1>(queue, dy, block_rows, partial);
    }
  });
  add_partial_sums(queue, partial, static_cast<float*>(dbias.data()));
}

void CudaOps::sum_of_squares(Stream& stream, ConstTensorView x, TensorView result) {
  check_sum_of_squares(x, result);
  if (x.empty()) return;
  const MatrixSize size = joined_rows(x);
  constexpr std::int64_t elements_of_block = threads * 32;
  constexpr std::int64_t most_blocks = 1024;
  const std::int64_t blocks = std::min(most_blocks, (x.elements() + elements_of_block - 1) / elements_of_block);
  // One more place for the elements behind the last whole piece of a vector.
  auto* partial = static_cast<double*>(scratch_.get(stream, (blocks + 1) * static_cast<std::int64_t>(sizeof(double))));
  const cudaStream_t queue = cuda_stream(stream);
  int partials = static_cast<int>(blocks);
  with_element(x.dtype(), [&]<class T>(std::type_identity<T>) {
    constexpr int width = elements_of_16_bytes<T>;
    const std::int64_t ragged = size.cols % width;
    if (ragged != 0 && size.rows > 1) {
      launch_squares<T, 1>(queue, x, size, static_cast<unsigned>(blocks), partial);
      return;
    }
    launch_squares<T, width>(queue, x, size, static_cast<unsigned>(blocks), partial);
    if (ragged == 0) return;
    const ConstTensorView rest = x.reshape(1, x.elements()).slice_cols(size.cols - ragged, ragged);
    launch_squares<T, 1>(queue, rest, {1, ragged}, 1, partial + partials++);
  });
  launch(add_squares_kernel, 1, dim3(threads), 0, queue, partial, partials, static_cast<double*>(result.data()));
}

}  // namespace skrull
