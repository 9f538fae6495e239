#include <cmath>
#include <cstdint>
#include <numeric>
#include <vector>

#include "kernel/kernel.h"
#include "seeds.h"
#include "support/catch.h"

namespace skrull {
namespace {

__global__ void __launch_bounds__(256) write_rank(std::int64_t* out, std::int64_t offset) {
  const std::int64_t thread = threadIdx.x + blockDim.x * (threadIdx.y + std::int64_t{blockDim.y} * threadIdx.z);
  const std::int64_t block = blockIdx.x + gridDim.x * (blockIdx.y + std::int64_t{gridDim.y} * blockIdx.z);
  const std::int64_t threads = blockDim.x * blockDim.y * blockDim.z;
  out[block * threads + thread] += offset + block * threads + thread;
}

template <int threads>
__global__ void __launch_bounds__(threads) block_sums(float* out, const float* in, std::int64_t columns) {
  SHARED_ARRAY(float, parts, threads / 32);
  const float* const row = in + blockIdx.x * columns;
  float sum = 0;
  for (std::int64_t i = threadIdx.x; i < columns; i += threads) sum += row[i];
  for (int offset = 16; offset > 0; offset /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, offset);
  if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = sum;
  __syncthreads();
  if (threadIdx.x == 0) {
    float total = 0;
    for (int i = 0; i < threads / 32; ++i) total += parts[i];
    out[blockIdx.x] = total;
  }
}

}  // namespace

TEST_CASE("every thread of every block of a grid runs once") {
  test::under_each_seed([] {
    const dim3 grid(3, 2, 2);
    const dim3 block(5, 3, 4);
    std::vector<std::int64_t> out(12 * 60, 0);
    launch(write_rank, grid, block, 0, nullptr, out.data(), 7);
    std::vector<std::int64_t> expected(out.size());
    std::iota(expected.begin(), expected.end(), 7);
    CHECK(out == expected);
  });
}

TEST_CASE("an empty grid launches nothing, one that is too large is refused") {
  launch(write_rank, 0, 32, 0, nullptr, nullptr, 0);
  launch(write_rank, dim3(2, 0), 32, 0, nullptr, nullptr, 0);
  CHECK_THROWS_WITH(launch(write_rank, std::int64_t{1} << 32, 32, 0, nullptr, nullptr, 0),
                    Catch::Matchers::ContainsSubstring("a grid of 4294967296 blocks at"));
}

TEST_CASE("sums over a block by shuffles and shared memory") {
  test::under_each_seed([] {
    const std::int64_t rows = 5;
    const std::int64_t columns = 301;
    std::vector<float> in(rows * columns);
    std::iota(in.begin(), in.end(), 0.0f);
    std::vector<float> out(rows, NAN);
    launch(block_sums<128>, rows, 128, 0, nullptr, out.data(), in.data(), columns);
    for (std::int64_t row = 0; row < rows; ++row) {
      const auto first = static_cast<double>(row * columns);
      CHECK(out[static_cast<std::size_t>(row)] == static_cast<float>(columns * (2 * first + columns - 1) / 2));
    }
  });
}

}  // namespace skrull
