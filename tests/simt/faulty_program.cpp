// Makes one mistake that should end the process: simt_faulty_program MISTAKE SEED. Ends with 0 and "done" if nothing
// ends it. Mistakes in kernels take a sanitizer.

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "kernel/kernel.h"
#include "simt/simt.h"

namespace skrull {
namespace {

constexpr int threads = 64;

/// Sums over a block; `barrier`: between writing and reading. The values stay right where each thread reads its own.
__global__ void __launch_bounds__(threads) through_shared(float* out, const float* in, bool barrier) {
  SHARED_ARRAY(float, values, threads);
  values[threadIdx.x] = in[threadIdx.x];
  if (barrier) __syncthreads();
  out[threadIdx.x] = values[threadIdx.x ^ 1];
}
/// The same inside a warp.
__global__ void __launch_bounds__(32) through_warp(float* out, const float* in, bool barrier) {
  DYNAMIC_SHARED_ARRAY(float, values);
  values[threadIdx.x] = in[threadIdx.x];
  if (barrier) __syncwarp();
  out[threadIdx.x] = values[threadIdx.x ^ 1];
}
/// A copy's target is read by another thread: `barrier` between wait and read.
__global__ void __launch_bounds__(threads) through_copy(float* out, const float* in, bool barrier) {
  SHARED_ARRAY(float, values, 4 * threads);
  cp_async16(values + 4 * threadIdx.x, in + 4 * threadIdx.x);
  cp_async_commit();
  cp_async_wait<0>();
  if (barrier) __syncthreads();
  out[threadIdx.x] = values[4 * (threadIdx.x ^ 1)];
}
/// Blocks add into one word.
__global__ void __launch_bounds__(32) add_to_one(float* out, bool atomic) {
  if (threadIdx.x != 0) return;
  if (atomic) {
    atomicAdd(out, 1.0f);
  } else {
    *out += 1;
  }
}
__global__ void __launch_bounds__(threads) write_static(int index) {
  SHARED_ARRAY(float, values, threads);
  if (threadIdx.x == 7) values[index] = 1;
}
__global__ void __launch_bounds__(threads) write_dynamic(int index) {
  DYNAMIC_SHARED_ARRAY(float, values);
  if (threadIdx.x == 7) values[index] = 1;
}
__global__ void __launch_bounds__(threads) read_global(float* out, const float* in, int index) {
  if (threadIdx.x == 7) *out = in[index];
}

/// Device memory that holds a number.
float* number_on_device() {
  void* memory = nullptr;
  const float number = 1;
  if (cudaMalloc(&memory, sizeof(number)) != cudaSuccess) std::abort();
  if (cudaMemcpy(memory, &number, sizeof(number), cudaMemcpyHostToDevice) != cudaSuccess) std::abort();
  return static_cast<float*>(memory);
}
void touch(void* memory) {
  *static_cast<volatile float*>(memory) = 2;
}
/// In the stream's order, yet not on the device.
void touch_in_host_task() {
  cudaStream_t stream = nullptr;
  if (cudaStreamCreate(&stream) != cudaSuccess) std::abort();
  if (cudaLaunchHostFunc(stream, touch, number_on_device()) != cudaSuccess) std::abort();
  if (cudaStreamSynchronize(stream) != cudaSuccess) std::abort();
}
/// The device goes to rest some time after its last work.
void touch_at_rest() {
  float* const memory = number_on_device();
  for (int i = 0; i < 1000; ++i) {
    touch(memory);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

void run(const std::string& mistake) {
  std::vector<float> in(4 * threads, 1);
  std::vector<float> out(threads);
  const std::size_t bytes = threads * sizeof(float);
  const std::map<std::string, std::function<void()>> kernels = {
      {"none",
       [&] {
         launch(through_shared, 1, threads, 0, nullptr, out.data(), in.data(), true);
         launch(through_warp, 1, 32, bytes, nullptr, out.data(), in.data(), true);
         launch(through_copy, 1, threads, 0, nullptr, out.data(), in.data(), true);
         launch(add_to_one, 5, 32, 0, nullptr, out.data(), true);
         launch(write_static, 2, threads, 0, nullptr, threads - 1);
         launch(write_dynamic, 2, threads, bytes, nullptr, threads - 1);
         launch(read_global, 1, threads, 0, nullptr, out.data(), in.data(), 4 * threads - 1);
       }},
      {"race in shared memory", [&] { launch(through_shared, 1, threads, 0, nullptr, out.data(), in.data(), false); }},
      {"race in a warp", [&] { launch(through_warp, 1, 32, bytes, nullptr, out.data(), in.data(), false); }},
      {"race behind a copy", [&] { launch(through_copy, 1, threads, 0, nullptr, out.data(), in.data(), false); }},
      {"race between blocks", [&] { launch(add_to_one, 5, 32, 0, nullptr, out.data(), false); }},
      {"beyond static memory", [&] { launch(write_static, 1, threads, 0, nullptr, threads); }},
      {"before static memory", [&] { launch(write_static, 1, threads, 0, nullptr, -1); }},
      {"beyond dynamic memory", [&] { launch(write_dynamic, 1, threads, bytes, nullptr, threads); }},
      {"beyond global memory",
       [&] { launch(read_global, 1, threads, 0, nullptr, out.data(), in.data(), 4 * threads); }},
      {"host code touches device memory", touch_at_rest},
      {"host task touches device memory", touch_in_host_task},
  };
  kernels.at(mistake)();
}

}  // namespace
}  // namespace skrull

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  skrull::simt::options().seed = std::strtoull(argv[2], nullptr, 10);
  skrull::run(argv[1]);
  std::puts("done");
}
