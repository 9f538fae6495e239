// Every kind of mistake that the host layer is there for, made on purpose: each must be found, and the same kernels
// without it must be clean. What takes a sanitizer is in sanitizer_test.cpp.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "kernel/kernel.h"
#include "seeds.h"
#include "simt/sanitizers.h"
#include "support/catch.h"

namespace skrull {
namespace {

using Catch::Matchers::ContainsSubstring;

constexpr std::uint64_t seeds = 20;
constexpr int threads = 64;
constexpr int tiles = 4;
constexpr int tile = threads * 4;  ///< floats: 16 bytes for each thread

enum class Mistake { none, no_barrier_after_write, no_wait, lax_wait, no_barrier_after_wait, no_barrier_before_refill };

/// out[t] = the sum over all tiles of what its neighbour copied: tiles stream through two buffers, loaded ahead.
template <Mistake mistake>
__global__ void __launch_bounds__(threads) sum_neighbours(float* out, const float* in) {
  SHARED_ARRAY(float, buffers, 2 * tile);
  const int thread = static_cast<int>(threadIdx.x);
  const int neighbour = (thread + threads / 2) % threads;
  const auto load = [&](int i) {
    cp_async16(buffers + i % 2 * tile + 4 * thread, in + i * tile + 4 * thread);
    cp_async_commit();
  };
  load(0);
  float sum = 0;
  for (int i = 0; i < tiles; ++i) {
    if (i + 1 < tiles) load(i + 1);
    if constexpr (mistake == Mistake::lax_wait) {
      cp_async_wait<2>();
    } else if constexpr (mistake != Mistake::no_wait) {
      if (i + 1 < tiles) {
        cp_async_wait<1>();
      } else {
        cp_async_wait<0>();
      }
    }
    if constexpr (mistake != Mistake::no_barrier_after_wait) __syncthreads();
    for (int e = 0; e < 4; ++e) sum += buffers[i % 2 * tile + 4 * neighbour + e];
    if constexpr (mistake != Mistake::no_barrier_before_refill) __syncthreads();
  }
  cp_async_wait<0>();
  out[thread] = sum;
}

template <Mistake mistake>
__global__ void __launch_bounds__(threads) mirror(float* values) {
  SHARED_ARRAY(float, copy, threads);
  copy[threadIdx.x] = values[threadIdx.x];
  if constexpr (mistake != Mistake::no_barrier_after_write) __syncthreads();
  values[threadIdx.x] = copy[threads - 1 - threadIdx.x];
}

/// Under so many of the seeds the result is wrong.
template <Mistake mistake>
int wrong_sums() {
  std::vector<float> in(tiles * tile);
  for (std::size_t i = 0; i < in.size(); ++i) in[i] = static_cast<float>(i % 97);
  std::vector<float> expected(threads, 0);
  for (int t = 0; t < threads; ++t) {
    const int neighbour = (t + threads / 2) % threads;
    for (int i = 0; i < tiles; ++i) {
      for (int e = 0; e < 4; ++e)
        expected[static_cast<std::size_t>(t)] += in[static_cast<std::size_t>(i * tile + 4 * neighbour + e)];
    }
  }
  int wrong = 0;
  test::under_each_seed(
      [&] {
        std::vector<float> out(threads, NAN);
        launch(sum_neighbours<mistake>, 1, threads, 0, nullptr, out.data(), in.data());
        if (out != expected) ++wrong;
      },
      seeds);
  return wrong;
}

template <Mistake mistake>
int wrong_mirrors() {
  int wrong = 0;
  test::under_each_seed(
      [&] {
        std::vector<float> values(threads);
        for (int t = 0; t < threads; ++t) values[static_cast<std::size_t>(t)] = static_cast<float>(t);
        std::vector<float> expected(values.rbegin(), values.rend());
        launch(mirror<mistake>, 1, threads, 0, nullptr, values.data());
        if (values != expected) ++wrong;
      },
      seeds);
  return wrong;
}

// ---- what is an error at once

__global__ void __launch_bounds__(64) barrier_of_some(float* out) {
  if (threadIdx.x < 40) __syncthreads();
  out[threadIdx.x] = 1;
}
__global__ void __launch_bounds__(64) barriers_apart(float* out) {
  if (threadIdx.x < 40) {
    __syncthreads();
  } else {
    __syncthreads();
  }
  out[threadIdx.x] = 1;
}
__global__ void __launch_bounds__(64) early_end(float* out) {
  if (threadIdx.x == 50) return;
  __syncthreads();
  out[threadIdx.x] = 1;
}
__global__ void __launch_bounds__(32) shuffle_of_some(float* out) {
  float value = 1;
  if (threadIdx.x < 16) value += __shfl_xor_sync(0xffffffffu, value, 1);
  out[threadIdx.x] = value;
}
__global__ void __launch_bounds__(32) shuffles_apart(float* out) {
  float value = 1;
  if (threadIdx.x < 16) {
    value += __shfl_xor_sync(0xffffffffu, value, 1);
  } else {
    value += __shfl_xor_sync(0xffffffffu, value, 2);
  }
  out[threadIdx.x] = value;
}
__global__ void __launch_bounds__(32) shuffle_from_outside(float* out) {
  float value = 1;
  if (threadIdx.x < 16) value += __shfl_xor_sync(0x0000ffffu, value, 16);
  out[threadIdx.x] = value;
}
__global__ void __launch_bounds__(32) shuffle_without_self(float* out) {
  out[threadIdx.x] = __shfl_sync(0x0000ffffu, 1.0f, 0);
}
__global__ void __launch_bounds__(32) product_of_half_a_warp(float* out) {
  float d[4] = {};
  const std::uint32_t a[4] = {};
  const std::uint32_t b[2] = {};
  mma_m16n8k16_bf16(d, a, b);
  out[threadIdx.x] = d[0];
}
__global__ void __launch_bounds__(32) copy_not_awaited(const float* in) {
  SHARED_ARRAY(float, buffer, 128);
  cp_async16(buffer + 4 * threadIdx.x, in + 4 * threadIdx.x);
  cp_async_commit();
}
__global__ void __launch_bounds__(32) copy_not_committed(const float* in) {
  SHARED_ARRAY(float, buffer, 128);
  cp_async16(buffer + 4 * threadIdx.x, in + 4 * threadIdx.x);
  cp_async_wait<0>();
}
__global__ void __launch_bounds__(32) copy_not_aligned(const float* in) {
  SHARED_ARRAY(float, buffer, 132);
  cp_async16(buffer + 4 * threadIdx.x + 1, in);
  cp_async_wait<0>();
}
__global__ void __launch_bounds__(32) matrix_not_aligned(float* out) {
  SHARED_ARRAY(bf16, buffer, 300);
  std::uint32_t r[4];
  ldmatrix_x4<false>(r, SharedRow(buffer + 8 * threadIdx.x + 1));
  out[threadIdx.x] = static_cast<float>(r[0]);
}
__global__ void __launch_bounds__(32) much_static_memory(float* out) {
  SHARED_ARRAY(float, first, 8192);
  SHARED_ARRAY(float, second, 8192);
  first[threadIdx.x] = second[threadIdx.x] = out[threadIdx.x];
}
__global__ void __launch_bounds__(32) throws_inside(float*) {
  throw std::runtime_error("a check of the kernel");
}

/// Launches it under every seed; each time the message must hold `expected`.
template <class Value>
void check_fails(void (*kernel)(Value*), unsigned block, const std::string& expected) {
  test::under_each_seed(
      [&] {
        std::vector<float> values(256, 1);
        CHECK_THROWS_WITH(launch(kernel, 1, block, 0, nullptr, values.data()),
                          ContainsSubstring(expected) && ContainsSubstring("detector_test.cpp"));
      },
      seeds);
}

}  // namespace

TEST_CASE("correct kernels are right under every seed") {
  CHECK(wrong_sums<Mistake::none>() == 0);
  CHECK(wrong_mirrors<Mistake::none>() == 0);
}

TEST_CASE("a wait that is missing or too lax gives NaN") {
  if (simt::thread_sanitizer) return;
  CHECK(wrong_sums<Mistake::lax_wait>() == seeds);
  // Without any wait the copies are never made, and the last wait finds them all.
  CHECK(wrong_sums<Mistake::no_wait>() == seeds);
}

TEST_CASE("a missing barrier gives wrong values under most seeds") {
  if (simt::thread_sanitizer) return;  // which finds races, and says so: sanitizer_test.cpp
  CHECK(wrong_mirrors<Mistake::no_barrier_after_write>() > static_cast<int>(seeds / 2));
  CHECK(wrong_sums<Mistake::no_barrier_after_wait>() > static_cast<int>(seeds / 2));
  CHECK(wrong_sums<Mistake::no_barrier_before_refill>() > static_cast<int>(seeds / 2));
}

TEST_CASE("barriers that not all threads meet") {
  test::under_each_seed(
      [] {
        std::vector<float> values(64);
        CHECK_THROWS_WITH(launch(barrier_of_some, 1, 64, 0, nullptr, values.data()),
                          ContainsSubstring("a thread ended while others wait there") ||
                              ContainsSubstring("threads of the block have ended already"));
        CHECK_THROWS_WITH(launch(early_end, 1, 64, 0, nullptr, values.data()),
                          ContainsSubstring("a thread ended while others wait there") ||
                              ContainsSubstring("threads of the block have ended already"));
      },
      seeds);
  check_fails(barriers_apart, 64, "other threads wait at __syncthreads at");
}

TEST_CASE("shuffles that not all lanes meet") {
  check_fails(shuffle_of_some, 32,
              "deadlock in block (0, 0, 0): 16 of 32 threads have ended, and none can go on; 16 wait "
              "in __shfl_xor_sync at");
  check_fails(shuffles_apart, 32, "while other lanes of the warp wait in __shfl_xor_sync at");
  check_fails(shuffle_from_outside, 32, "which is not in mask 0000ffff");
  check_fails(shuffle_without_self, 32, "lacks the calling lane");
}

TEST_CASE("instructions of a whole warp") {
  check_fails(product_of_half_a_warp, 16, "mma needs all 32 lanes");
}

TEST_CASE("copies that are not awaited") {
  check_fails(copy_not_awaited, 32, "cp.async copies that it did not wait for");
  check_fails(copy_not_committed, 32, "cp.async copies that it did not wait for");
}

TEST_CASE("addresses that are not aligned") {
  check_fails(copy_not_aligned, 1, "the target is not aligned to 16 bytes");
  check_fails(matrix_not_aligned, 32, "the row is not aligned to 16 bytes");
}

TEST_CASE("sizes that no GPU has") {
  check_fails(much_static_memory, 32, "65536 bytes of static shared arrays");
  std::vector<float> values(2048);
  CHECK_THROWS_WITH(launch(early_end, 1, 1025, 0, nullptr, values.data()), ContainsSubstring("1 to 1024 are possible"));
  CHECK_THROWS_WITH(launch(early_end, 1, 32, 200 << 10, nullptr, values.data()),
                    ContainsSubstring("204800 bytes of dynamic shared memory"));
  CHECK_THROWS_WITH(launch(early_end, dim3(1, 65536), 32, 0, nullptr, values.data()),
                    ContainsSubstring("a grid of 1 x 65536 x 1 blocks"));
}

TEST_CASE("an exception inside a kernel ends the launch, and the next one runs") {
  check_fails(throws_inside, 32, "a check of the kernel");
  std::vector<float> values(threads, 2);
  launch(mirror<Mistake::none>, 1, threads, 0, nullptr, values.data());
  CHECK(std::count(values.begin(), values.end(), 2.0f) == threads);
}

}  // namespace skrull
