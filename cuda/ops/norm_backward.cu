// Gradients of RMSNorm. With r = inverse_rms: dx += r (dy w - x r^2 mean(dy w x)), dweight += sum over rows of dy x r.
// Every block has a range of rows and leaves its share of dweight as one row of partial sums.

#include <algorithm>

#include "device/cuda_stream.h"
#include "kernel/reduction.h"
#include "kernel/rows.h"
#include "kernel/vector_access.h"
#include "ops/column_sums.h"
#include "ops/cuda_ops.h"
#include "ops/norm_shapes.h"
#include "skrull/core/narrow.h"
#include "skrull/device/operation_operands.h"

namespace skrull {

namespace {

template <class T>
struct NormBackward {
  Rows<const T> dy;
  Rows<const T> x;
  const T* weight;
  const float* inverse_rms;
  Rows<T> dx;
  std::int64_t rows;
  std::int64_t width;
  std::int64_t block_rows;
  float* partial_dweight;  ///< [blocks, width]

  __device__ std::int64_t first_row() const { return blockIdx.x * block_rows; }
  __device__ std::int64_t end_row() const { return min(rows, first_row() + block_rows); }
  /// What x is multiplied by, of the sum of dy w x over a row.
  __device__ float mean(float products, float inverse) const {
    return products * inverse * inverse / static_cast<float>(width);
  }
};

/// A piece of a row, as it was read: 16 bytes in as many registers as they need.
template <class T>
struct RawPiece {
  uint4 bits;
  __device__ void load_from(const T* from) { bits = *reinterpret_cast<const uint4*>(from); }
  __device__ void unpack(float (&values)[elements_of_16_bytes<T>]) const {
    if constexpr (std::is_same_v<T, float>) {
      values[0] = __uint_as_float(bits.x);
      values[1] = __uint_as_float(bits.y);
      values[2] = __uint_as_float(bits.z);
      values[3] = __uint_as_float(bits.w);
    } else {
      const std::uint32_t pairs[4] = {bits.x, bits.y, bits.z, bits.w};
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float2 both = unpack_pair(pairs[i]);
        values[2 * i] = both.x;
        values[2 * i + 1] = both.y;
      }
    }
  }
};

/// `groups` groups of threads of a block take its rows in turn, each a row at a time in registers. More than one group:
/// each is one warp.
template <class T, int threads, int groups>
__global__ void __launch_bounds__(threads* groups) norm_backward_kernel(const NormBackward<T> norm) {
  static_assert(groups == 1 || threads == warp_threads);
  constexpr int n = elements_of_16_bytes<T>;
  const int member = static_cast<int>(threadIdx.x) % threads;
  const int group = static_cast<int>(threadIdx.x) / threads;
  const auto column = [&](int i) { return (i * threads + member) * n; };
  const auto width = static_cast<int>(norm.width);
  float dweight[norm_pieces][n] = {};
  for (std::int64_t row = norm.first_row() + group; row < norm.end_row(); row += groups) {
    RawPiece<T> dy[norm_pieces];
    RawPiece<T> x[norm_pieces];
    const float inverse = norm.inverse_rms[row];
#pragma unroll
    for (int i = 0; i < norm_pieces; ++i) {
      if (column(i) >= width) break;
      dy[i].load_from(norm.dy.at(row, column(i)));
      x[i].load_from(norm.x.at(row, column(i)));
    }
    float products = 0;
#pragma unroll
    for (int i = 0; i < norm_pieces; ++i) {
      if (column(i) >= width) break;
      float gradient[n];
      float value[n];
      float weight[n];
      dy[i].unpack(gradient);
      x[i].unpack(value);
      load(norm.weight + column(i), weight);
#pragma unroll
      for (int e = 0; e < n; ++e) {
        const float share = gradient[e] * value[e];
        products = fmaf(share, weight[e], products);
        dweight[i][e] = fmaf(share, inverse, dweight[i][e]);
      }
    }
    const float mean = norm.mean(block_reduce<threads>(products, Sum{}), inverse);
#pragma unroll
    for (int i = 0; i < norm_pieces; ++i) {
      if (column(i) >= width) break;
      float gradient[n];
      float value[n];
      float weight[n];
      float dx[n];
      dy[i].unpack(gradient);
      x[i].unpack(value);
      load(norm.weight + column(i), weight);
      load<n>(norm.dx.at(row, column(i)), dx);
#pragma unroll
      for (int e = 0; e < n; ++e) dx[e] += (gradient[e] * weight[e] - value[e] * mean) * inverse;
      store(norm.dx.at(row, column(i)), dx);
    }
  }
  float* const partial = norm.partial_dweight + blockIdx.x * norm.width;
  if constexpr (groups == 1) {
#pragma unroll
    for (int i = 0; i < norm_pieces; ++i) {
      if (column(i) >= width) break;
      store(partial + column(i), dweight[i]);
    }
  } else {
    // Group after group adds its share.
    SHARED_ARRAY(float, sums, threads* norm_pieces* n);
    for (int turn = 0; turn < groups; ++turn) {
      if (turn == group) {
#pragma unroll
        for (int i = 0; i < norm_pieces; ++i) {
          float sum[n] = {};
          if (turn != 0) load<n>(sums + column(i), sum);
#pragma unroll
          for (int e = 0; e < n; ++e) sum[e] += dweight[i][e];
          store(sums + column(i), sum);
        }
      }
      __syncthreads();
    }
    for (int col = static_cast<int>(threadIdx.x); col < width; col += threads * groups) partial[col] = sums[col];
  }
}

/// Rows of any width and alignment; the block's partial sums stay in memory.
template <class T>
__global__ void __launch_bounds__(norm_general_threads) general_norm_backward_kernel(const NormBackward<T> norm) {
  constexpr int threads = norm_general_threads;
  float* const partial = norm.partial_dweight + blockIdx.x * norm.width;
  for (std::int64_t row = norm.first_row(); row < norm.end_row(); ++row) {
    const float inverse = norm.inverse_rms[row];
    const bool first = row == norm.first_row();
    float products = 0;
    for (std::int64_t col = threadIdx.x; col < norm.width; col += threads) {
      const float share = to_float(*norm.dy.at(row, col)) * to_float(*norm.x.at(row, col));
      products = fmaf(share, to_float(norm.weight[col]), products);
      partial[col] = fmaf(share, inverse, first ? 0.0F : partial[col]);
    }
    const float mean = norm.mean(block_reduce<threads>(products, Sum{}), inverse);
    for (std::int64_t col = threadIdx.x; col < norm.width; col += threads) {
      const float change =
          to_float(*norm.dy.at(row, col)) * to_float(norm.weight[col]) - to_float(*norm.x.at(row, col)) * mean;
      T* const dx = norm.dx.at(row, col);
      *dx = from_float<T>(to_float(*dx) + change * inverse);
    }
  }
}

/// A row of a warp leaves most of a block's threads idle: then blocks have as many rows at a time.
constexpr int groups_of(int threads) {
  return threads == warp_threads ? 8 : 1;
}

}  // namespace

void CudaOps::rms_norm_backward(Stream& stream, ConstTensorView dy, ConstTensorView x, ConstTensorView weight,
                                ConstTensorView inverse_rms, TensorView dx, TensorView dweight) {
  check_rms_norm_backward(dy, x, weight, inverse_rms, dx, dweight);
  if (x.empty()) return;
  // Blocks depend on the shape alone, so sums are the same on every GPU.
  constexpr auto float_bytes = static_cast<std::int64_t>(sizeof(float));
  const std::int64_t most_blocks =
      std::max<std::int64_t>(1, std::min<std::int64_t>(512, scratch_.capacity() / (float_bytes * x.cols())));
  constexpr std::int64_t fewest_rows = 8;
  const std::int64_t block_rows = std::max(fewest_rows, (x.rows() + most_blocks - 1) / most_blocks);
  PartialSums partial{nullptr, (x.rows() + block_rows - 1) / block_rows, x.cols()};
  partial.data = static_cast<float*>(scratch_.get(stream, partial.count * partial.cols * float_bytes));
  const cudaStream_t queue = cuda_stream(stream);
  const auto blocks = narrow<std::int32_t>(partial.count);
  with_element(x.dtype(), [&]<class T>(std::type_identity<T>) {
    constexpr int n = elements_of_16_bytes<T>;
    const NormBackward<T> norm{rows_of<T>(dy),
                               rows_of<T>(x),
                               static_cast<const T*>(weight.data()),
                               static_cast<const float*>(inverse_rms.data()),
                               rows_of<T>(dx),
                               x.rows(),
                               x.cols(),
                               block_rows,
                               partial.data};
    bool aligned = x.cols() % n == 0;
    for (const ConstTensorView& view : {dy, x, weight, ConstTensorView(dx)}) {
      aligned = aligned && rows_in_pieces_of(n, view);
    }
    const bool in_registers = aligned && with_norm_threads(x.cols() / n, [&]<int threads>(NormThreads<threads>) {
                                constexpr int groups = groups_of(threads);
                                launch(norm_backward_kernel<T, threads, groups>, static_cast<unsigned>(blocks),
                                       dim3(threads * groups), 0, queue, norm);
                              });
    if (in_registers) return;
    launch(general_norm_backward_kernel<T>, static_cast<unsigned>(blocks), dim3(norm_general_threads), 0, queue, norm);
  });
  add_partial_sums(queue, partial, static_cast<float*>(dweight.data()));
}

}  // namespace skrull
