#include "kernel/reduction.h"
#include "ops/column_sums.h"

namespace skrull {

namespace {

constexpr int warps = 16;

/// A lane has a column; each warp adds every 16th row, and the warps' sums are added in order.
__global__ void __launch_bounds__(warps* warp_threads) add_rows_kernel(const PartialSums partial, float* out) {
  SHARED_ARRAY(float, sums, warps* warp_threads);
  const int lane = static_cast<int>(threadIdx.x) % warp_threads;
  const int warp = static_cast<int>(threadIdx.x) / warp_threads;
  const std::int64_t col = std::int64_t{blockIdx.x} * warp_threads + lane;
  const bool inside = col < partial.cols;
  float sum = 0;
  if (inside) {
#pragma unroll 8
    for (std::int64_t row = warp; row < partial.count; row += warps) sum += partial.data[row * partial.cols + col];
  }
  sums[threadIdx.x] = sum;
  __syncthreads();
  if (warp != 0 || !inside) return;
  float total = out[col];
#pragma unroll
  for (int i = 0; i < warps; ++i) total += sums[i * warp_threads + lane];
  out[col] = total;
}

}  // namespace

void add_partial_sums(cudaStream_t stream, const PartialSums& partial, float* out) {
  const std::int64_t blocks = (partial.cols + warp_threads - 1) / warp_threads;
  launch(add_rows_kernel, static_cast<unsigned>(blocks), dim3(warps * warp_threads), 0, stream, partial, out);
}

}  // namespace skrull
