#include <cmath>
#include <cstdint>

#include "kernel/calibration.h"
#include "kernel/kernel.h"
#include "skrull/core/error.h"

namespace skrull {
namespace {

constexpr int warp = 32;

void check(cudaError_t error, const char* call) {
  require(error == cudaSuccess, "{} failed: {}", call, cudaGetErrorString(error));
}

/// Values on the device, for one check.
template <class T>
class DeviceVector {
 public:
  DeviceVector(const std::vector<T>& values, cudaStream_t stream) : size_(values.size()), stream_(stream) {
    check(cudaMallocAsync(reinterpret_cast<void**>(&data_), bytes(), stream), "cudaMallocAsync");
    check(cudaMemcpyAsync(data_, values.data(), bytes(), cudaMemcpyHostToDevice, stream), "cudaMemcpyAsync");
    check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
  }
  ~DeviceVector() { static_cast<void>(cudaFreeAsync(data_, stream_)); }
  DeviceVector(const DeviceVector&) = delete;
  DeviceVector& operator=(const DeviceVector&) = delete;

  T* data() { return data_; }
  std::vector<T> values() const {
    std::vector<T> result(size_);
    check(cudaMemcpyAsync(result.data(), data_, bytes(), cudaMemcpyDeviceToHost, stream_), "cudaMemcpyAsync");
    check(cudaStreamSynchronize(stream_), "cudaStreamSynchronize");
    return result;
  }

 private:
  std::size_t bytes() const { return size_ * sizeof(T); }

  T* data_ = nullptr;
  std::size_t size_;
  cudaStream_t stream_;
};

template <class T>
void compare(const char* what, const std::vector<T>& found, const std::vector<T>& expected,
             std::vector<std::string>& differences) {
  for (std::size_t i = 0; i < expected.size(); ++i) {
    if (found[i] == expected[i]) continue;
    differences.push_back(fmt::format("{}: value {} is {}, expected {}", what, i, found[i], expected[i]));
    return;
  }
}

// ---- mma

/// d (16 x 8) = c + a (16 x 16) b (16 x 8), all row-major; fragments as the PTX manual draws them for m16n8k16.
__global__ void __launch_bounds__(warp) multiply(float* d, const float* c, const bf16* a, const bf16* b) {
  const int lane = static_cast<int>(threadIdx.x);
  const int group = lane / 4;
  const int pair = lane % 4 * 2;
  const auto packed = [](bf16 low, bf16 high) {
    return static_cast<std::uint32_t>(__bfloat16_as_ushort(low)) |
           static_cast<std::uint32_t>(__bfloat16_as_ushort(high)) << 16;
  };
  std::uint32_t fragment_a[4];
  for (int i = 0; i < 4; ++i) {
    const bf16* const from = a + (group + i % 2 * 8) * 16 + pair + i / 2 * 8;
    fragment_a[i] = packed(from[0], from[1]);
  }
  std::uint32_t fragment_b[2];
  for (int i = 0; i < 2; ++i) {
    const bf16* const from = b + (pair + i * 8) * 8 + group;
    fragment_b[i] = packed(from[0], from[8]);
  }
  float sums[4];
  for (int i = 0; i < 4; ++i) sums[i] = c[(group + i / 2 * 8) * 8 + pair + i % 2];
  mma_m16n8k16_bf16(sums, fragment_a, fragment_b);
  for (int i = 0; i < 4; ++i) d[(group + i / 2 * 8) * 8 + pair + i % 2] = sums[i];
}

/// Integers, so that every sum is exact and nothing depends on the order of summing.
void check_mma(cudaStream_t stream, std::vector<std::string>& differences) {
  std::vector<bf16> a(16 * 16);
  std::vector<bf16> b(16 * 8);
  std::vector<float> c(16 * 8);
  const auto integer = [](std::size_t i, int step) { return static_cast<float>(static_cast<int>(i) * step % 31 - 15); };
  for (std::size_t i = 0; i < a.size(); ++i) a[i] = __float2bfloat16(integer(i, 7));
  for (std::size_t i = 0; i < b.size(); ++i) b[i] = __float2bfloat16(integer(i, 11));
  for (std::size_t i = 0; i < c.size(); ++i) c[i] = integer(i, 5);
  std::vector<float> expected = c;
  for (std::size_t row = 0; row < 16; ++row) {
    for (std::size_t column = 0; column < 8; ++column) {
      for (std::size_t k = 0; k < 16; ++k) {
        expected[row * 8 + column] += __bfloat162float(a[row * 16 + k]) * __bfloat162float(b[k * 8 + column]);
      }
    }
  }
  DeviceVector<bf16> device_a(a, stream);
  DeviceVector<bf16> device_b(b, stream);
  DeviceVector<float> device_c(c, stream);
  DeviceVector<float> device_d(std::vector<float>(c.size()), stream);
  launch(multiply, 1, warp, 0, stream, device_d.data(), device_c.data(), device_a.data(), device_b.data());
  compare("mma.m16n8k16", device_d.values(), expected, differences);
}

// ---- ldmatrix

constexpr int matrix_rows = 32;
constexpr int row_stride = 24;  ///< in elements: rows need not follow each other

/// Row r of the four matrices lies at place (r * 5) % 32.
__host__ __device__ constexpr int place_of_row(int row) {
  return row * 5 % matrix_rows;
}

template <bool transposed>
__global__ void __launch_bounds__(warp) load_matrices(std::uint32_t* out, const bf16* in) {
  SHARED_ARRAY(bf16, rows, matrix_rows * row_stride);
  for (int i = static_cast<int>(threadIdx.x); i < matrix_rows * row_stride; i += warp) rows[i] = in[i];
  __syncthreads();
  std::uint32_t registers[4];
  ldmatrix_x4<transposed>(registers, SharedRow(rows + place_of_row(static_cast<int>(threadIdx.x)) * row_stride));
  for (int i = 0; i < 4; ++i) out[threadIdx.x * 4 + static_cast<unsigned>(i)] = registers[i];
}

template <bool transposed>
void check_ldmatrix(cudaStream_t stream, std::vector<std::string>& differences) {
  std::vector<bf16> memory(matrix_rows * row_stride);
  for (std::size_t i = 0; i < memory.size(); ++i) memory[i] = __ushort_as_bfloat16(static_cast<std::uint16_t>(i));
  const auto element = [](int matrix, int row, int column) {
    return static_cast<std::uint32_t>(place_of_row(matrix * 8 + row) * row_stride + column);
  };
  std::vector<std::uint32_t> expected(warp * 4);
  for (int lane = 0; lane < warp; ++lane) {
    for (int matrix = 0; matrix < 4; ++matrix) {
      const int row = lane / 4;
      const int column = lane % 4 * 2;
      const std::uint32_t low = transposed ? element(matrix, column, row) : element(matrix, row, column);
      const std::uint32_t high = transposed ? element(matrix, column + 1, row) : element(matrix, row, column + 1);
      expected[static_cast<std::size_t>(lane * 4 + matrix)] = low | high << 16;
    }
  }
  DeviceVector<bf16> in(memory, stream);
  DeviceVector<std::uint32_t> out(std::vector<std::uint32_t>(expected.size()), stream);
  launch(load_matrices<transposed>, 1, warp, 0, stream, out.data(), in.data());
  compare(transposed ? "ldmatrix.trans" : "ldmatrix", out.values(), expected, differences);
}

// ---- cp.async

constexpr int copy_threads = 64;
constexpr int copy_groups = 3;

/// Each group copies 16 bytes a thread; threads of odd number copy nothing in the last one, and get zeros. What the
/// opposite thread copied is read after each wait.
__global__ void __launch_bounds__(copy_threads) copy_in_groups(float* out, const float* in) {
  DYNAMIC_SHARED_ARRAY(float, buffer);
  const int thread = static_cast<int>(threadIdx.x);
  const int opposite = copy_threads - 1 - thread;
  const auto offset = [](int group, int who) { return (group * copy_threads + who) * 4; };
  for (int group = 0; group < copy_groups; ++group) {
    float* const to = buffer + offset(group, thread);
    if (group + 1 < copy_groups) {
      cp_async16(to, in + offset(group, thread));
    } else {
      cp_async16_or_zero(to, in + offset(group, thread), thread % 2 == 0);
    }
    cp_async_commit();
  }
  cp_async_wait<1>();
  __syncthreads();
  for (int group = 0; group + 1 < copy_groups; ++group) {
    for (int e = 0; e < 4; ++e) out[offset(group, thread) + e] = buffer[offset(group, opposite) + e];
  }
  cp_async_wait<0>();
  __syncthreads();
  for (int e = 0; e < 4; ++e) out[offset(copy_groups - 1, thread) + e] = buffer[offset(copy_groups - 1, opposite) + e];
}

void check_cp_async(cudaStream_t stream, std::vector<std::string>& differences) {
  const std::size_t count = copy_groups * copy_threads * 4;
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i) values[i] = static_cast<float>(i + 1);
  std::vector<float> expected(count);
  for (std::size_t group = 0; group < copy_groups; ++group) {
    for (std::size_t thread = 0; thread < copy_threads; ++thread) {
      const std::size_t from = copy_threads - 1 - thread;
      const bool zero = group + 1 == copy_groups && from % 2 == 1;
      for (std::size_t e = 0; e < 4; ++e) {
        expected[(group * copy_threads + thread) * 4 + e] = zero ? 0 : values[(group * copy_threads + from) * 4 + e];
      }
    }
  }
  DeviceVector<float> in(values, stream);
  DeviceVector<float> out(std::vector<float>(count), stream);
  launch(copy_in_groups, 1, copy_threads, count * sizeof(float), stream, out.data(), in.data());
  compare("cp.async", out.values(), expected, differences);
}

// ---- shuffles and votes

constexpr int exchanges = 8;

__global__ void __launch_bounds__(warp) exchange(int* out) {
  constexpr unsigned all = 0xffffffffu;
  const int lane = static_cast<int>(threadIdx.x);
  const int value = 100 + lane;
  int* const own = out + lane * exchanges;
  own[0] = __shfl_sync(all, value, 5);
  own[1] = __shfl_sync(all, value, lane * 3, 8);
  own[2] = __shfl_up_sync(all, value, 3, 16);
  own[3] = __shfl_down_sync(all, value, 9);
  own[4] = __shfl_xor_sync(all, value, 6, 8);
  own[5] = __shfl_xor_sync(all, value, 20, 16);
  own[6] = static_cast<int>(__ballot_sync(all, lane % 3 == 1) >> 1);
  own[7] = 2 * __any_sync(all, lane == 31) + __all_sync(all, lane != 31);
}

void check_exchanges(cudaStream_t stream, std::vector<std::string>& differences) {
  std::vector<int> expected;
  unsigned votes = 0;
  for (int lane = 0; lane < warp; ++lane) votes |= static_cast<unsigned>(lane % 3 == 1) << lane;
  for (int lane = 0; lane < warp; ++lane) {
    const auto add = [&](int source) { expected.push_back(100 + source); };
    add(5);
    add(lane / 8 * 8 + lane * 3 % 8);
    add(lane % 16 >= 3 ? lane - 3 : lane);
    add(lane + 9 < warp ? lane + 9 : lane);
    add(lane ^ 6);
    add((lane ^ 20) / 16 > lane / 16 ? lane : lane ^ 20);  // a segment below may be read, one above not
    expected.push_back(static_cast<int>(votes >> 1));
    expected.push_back(2);
  }
  DeviceVector<int> out(std::vector<int>(expected.size()), stream);
  launch(exchange, 1, warp, 0, stream, out.data());
  compare("shuffles and votes", out.values(), expected, differences);
}

}  // namespace

std::vector<std::string> check_instructions(cudaStream_t stream) {
  std::vector<std::string> differences;
  check_mma(stream, differences);
  check_ldmatrix<false>(stream, differences);
  check_ldmatrix<true>(stream, differences);
  check_cp_async(stream, differences);
  check_exchanges(stream, differences);
  return differences;
}

}  // namespace skrull
