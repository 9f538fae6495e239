// The stand-in's streams, events and memory: what a GPU promises holds under every seed, what it doesn't breaks under
// some.

#include <cublasLt.h>
#include <cuda_runtime.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "kernel/kernel.h"
#include "seeds.h"
#include "support/catch.h"

namespace skrull {
namespace {

__global__ void __launch_bounds__(32) add_to_all(float* values, int count, float term) {
  for (int i = static_cast<int>(threadIdx.x); i < count; i += 32) values[i] += term;
}
__global__ void __launch_bounds__(32) double_all(float* values, int count) {
  for (int i = static_cast<int>(threadIdx.x); i < count; i += 32) values[i] *= 2;
}
__global__ void __launch_bounds__(32) end_before_others(float* values) {
  if (threadIdx.x == 3) return;
  __syncthreads();
  values[threadIdx.x] = 1;
}

constexpr int count = 100;
constexpr std::size_t bytes = count * sizeof(float);

/// Two streams, a vector on the device and one in pinned memory.
class Scene {
 public:
  Scene() {
    REQUIRE(cudaStreamCreate(&first) == cudaSuccess);
    REQUIRE(cudaStreamCreate(&second) == cudaSuccess);
    REQUIRE(cudaEventCreate(&event) == cudaSuccess);
    REQUIRE(cudaMallocAsync(reinterpret_cast<void**>(&device), bytes, first) == cudaSuccess);
    REQUIRE(cudaMallocHost(reinterpret_cast<void**>(&pinned), bytes) == cudaSuccess);
    std::iota(pinned, pinned + count, 0.0f);
  }
  ~Scene() {
    cudaFreeAsync(device, first);
    cudaDeviceSynchronize();
    cudaFreeHost(pinned);
    cudaEventDestroy(event);
    cudaStreamDestroy(first);
    cudaStreamDestroy(second);
  }
  Scene(const Scene&) = delete;
  Scene& operator=(const Scene&) = delete;

  /// (i + 1) * 2 on two streams, the second one behind the first where `ordered`.
  float run(bool ordered) {
    REQUIRE(cudaMemcpyAsync(device, pinned, bytes, cudaMemcpyHostToDevice, first) == cudaSuccess);
    launch(add_to_all, 1, 32, 0, first, device, count, 1.0f);
    if (ordered) {
      REQUIRE(cudaEventRecord(event, first) == cudaSuccess);
      REQUIRE(cudaStreamWaitEvent(second, event) == cudaSuccess);
    }
    launch(double_all, 1, 32, 0, second, device, count);
    REQUIRE(cudaMemcpyAsync(pinned, device, bytes, cudaMemcpyDeviceToHost, second) == cudaSuccess);
    REQUIRE(cudaStreamSynchronize(second) == cudaSuccess);
    return pinned[10];
  }

  cudaStream_t first = nullptr;
  cudaStream_t second = nullptr;
  cudaEvent_t event = nullptr;
  float* device = nullptr;
  float* pinned = nullptr;
};

}  // namespace

TEST_CASE("streams are ordered by events") {
  test::under_each_seed([] {
    Scene scene;
    CHECK(scene.run(true) == 22);
    CHECK(cudaEventQuery(scene.event) == cudaSuccess);
  });
}

TEST_CASE("a missing wait shows under some seed") {
  int wrong = 0;
  test::under_each_seed([&] {
    Scene scene;
    if (!(scene.run(false) == 22)) ++wrong;
  });
  CHECK(wrong > 0);
}

TEST_CASE("nothing is done before the host waits") {
  Scene scene;
  REQUIRE(cudaStreamSynchronize(scene.first) == cudaSuccess);
  // More than a thousandth of a second without new work would also begin it.
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < 100; ++i) launch(add_to_all, 1, 32, 0, scene.first, scene.device, count, 1.0f);
  REQUIRE(cudaEventRecord(scene.event, scene.first) == cudaSuccess);
  const cudaError_t state = cudaEventQuery(scene.event);
  const std::chrono::duration<double, std::milli> taken = std::chrono::steady_clock::now() - start;
  if (taken.count() < 1) {
    CHECK(state == cudaErrorNotReady);
    CHECK(cudaGetLastError() == cudaErrorNotReady);
  }
  CHECK(cudaEventSynchronize(scene.event) == cudaSuccess);
  CHECK(cudaEventQuery(scene.event) == cudaSuccess);
}

TEST_CASE("work is done though the host waits elsewhere") {
  Scene scene;
  std::atomic<bool> called{false};
  const auto call = [](void* flag) { *static_cast<std::atomic<bool>*>(flag) = true; };
  REQUIRE(cudaLaunchHostFunc(scene.first, call, &called) == cudaSuccess);
  while (!called) std::this_thread::yield();
  CHECK(cudaStreamSynchronize(scene.first) == cudaSuccess);
}

TEST_CASE("pageable memory is read and written during the call") {
  Scene scene;
  std::vector<float> pageable(count, 5);
  REQUIRE(cudaMemcpyAsync(scene.device, pageable.data(), bytes, cudaMemcpyHostToDevice, scene.first) == cudaSuccess);
  pageable.assign(count, -1);
  REQUIRE(cudaMemcpyAsync(pageable.data(), scene.device, bytes, cudaMemcpyDeviceToHost, scene.first) == cudaSuccess);
  CHECK(pageable == std::vector<float>(count, 5));
}

TEST_CASE("pinned memory is read when the stream comes to the copy") {
  Scene scene;
  std::atomic<bool> let_go{false};
  const auto wait_for_host = [](void* flag) {
    while (!*static_cast<std::atomic<bool>*>(flag)) std::this_thread::yield();
  };
  REQUIRE(cudaLaunchHostFunc(scene.first, wait_for_host, &let_go) == cudaSuccess);
  REQUIRE(cudaMemcpyAsync(scene.device, scene.pinned, bytes, cudaMemcpyHostToDevice, scene.first) == cudaSuccess);
  scene.pinned[3] = 77;
  let_go = true;
  std::vector<float> values(count);
  REQUIRE(cudaMemcpyAsync(values.data(), scene.device, bytes, cudaMemcpyDeviceToHost, scene.first) == cudaSuccess);
  CHECK(values[2] == 2);
  CHECK(values[3] == 77);
}

TEST_CASE("memory starts as NaN") {
  Scene scene;
  std::vector<float> values(count);
  REQUIRE(cudaMemcpyAsync(values.data(), scene.device, bytes, cudaMemcpyDeviceToHost, scene.first) == cudaSuccess);
  for (const float value : values) CHECK(std::isnan(value));
}

TEST_CASE("copies check kinds and bounds") {
  Scene scene;
  CHECK(cudaMemcpyAsync(scene.device, scene.pinned, bytes, cudaMemcpyDeviceToHost, scene.first) ==
        cudaErrorInvalidValue);
  CHECK(cudaMemcpyAsync(scene.device + 1, scene.pinned, bytes, cudaMemcpyHostToDevice, scene.first) ==
        cudaErrorInvalidValue);
  CHECK(cudaMemsetAsync(scene.pinned, 0, bytes, scene.first) == cudaErrorInvalidValue);
  CHECK(cudaGetLastError() == cudaErrorInvalidValue);
  CHECK(cudaGetLastError() == cudaSuccess);
}

TEST_CASE("copies of rows keep what lies between") {
  Scene scene;
  REQUIRE(cudaMemsetAsync(scene.device, 0, bytes, scene.first) == cudaSuccess);
  REQUIRE(cudaMemcpy2DAsync(scene.device, 5 * sizeof(float), scene.pinned, 3 * sizeof(float), 3 * sizeof(float), 4,
                            cudaMemcpyHostToDevice, scene.first) == cudaSuccess);
  std::vector<float> values(20);
  REQUIRE(cudaMemcpyAsync(values.data(), scene.device, 20 * sizeof(float), cudaMemcpyDeviceToHost, scene.first) ==
          cudaSuccess);
  CHECK(values == std::vector<float>{0, 1, 2, 0, 0, 3, 4, 5, 0, 0, 6, 7, 8, 0, 0, 9, 10, 11, 0, 0});
}

TEST_CASE("memory runs out and comes back") {
  std::size_t free = 0;
  std::size_t total = 0;
  REQUIRE(cudaMemGetInfo(&free, &total) == cudaSuccess);
  void* memory = nullptr;
  CHECK(cudaMalloc(&memory, total + 1) == cudaErrorMemoryAllocation);
  CHECK(cudaGetLastError() == cudaErrorMemoryAllocation);
  std::vector<void*> pieces(3);
  for (void*& piece : pieces) REQUIRE(cudaMalloc(&piece, 1000) == cudaSuccess);
  for (const int i : {1, 0, 2}) CHECK(cudaFree(pieces[static_cast<std::size_t>(i)]) == cudaSuccess);
  std::size_t free_again = 0;
  REQUIRE(cudaMemGetInfo(&free_again, &total) == cudaSuccess);
  CHECK(free_again == free);
}

TEST_CASE("events tell the time between them") {
  Scene scene;
  cudaEvent_t later = nullptr;
  cudaEvent_t untimed = nullptr;
  REQUIRE(cudaEventCreate(&later) == cudaSuccess);
  REQUIRE(cudaEventCreateWithFlags(&untimed, cudaEventDisableTiming) == cudaSuccess);
  for (const cudaEvent_t event : {scene.event, later, untimed}) {
    REQUIRE(cudaEventRecord(event, scene.first) == cudaSuccess);
  }
  REQUIRE(cudaEventSynchronize(untimed) == cudaSuccess);
  float milliseconds = -1;
  CHECK(cudaEventElapsedTime(&milliseconds, scene.event, later) == cudaSuccess);
  CHECK(milliseconds >= 0);
  CHECK(cudaEventElapsedTime(&milliseconds, scene.event, untimed) == cudaErrorInvalidResourceHandle);
  cudaEventDestroy(later);
  cudaEventDestroy(untimed);
}

TEST_CASE("products are cuBLASLt's: column-major, transposed or not, with bias and a sum") {
  Scene scene;
  const int m = 3;
  const int n = 2;
  const int k = 4;
  // A is stored transposed (k x m), B as it is (k x n), both in the first elements of the vector.
  const float* const a = scene.pinned;
  const float* const b = scene.pinned + m * k;
  REQUIRE(cudaMemcpyAsync(scene.device, scene.pinned, bytes, cudaMemcpyHostToDevice, scene.first) == cudaSuccess);
  cublasLtHandle_t handle = nullptr;
  cublasLtMatmulDesc_t description = nullptr;
  cublasLtMatrixLayout_t layout_a = nullptr;
  cublasLtMatrixLayout_t layout_b = nullptr;
  cublasLtMatrixLayout_t layout_c = nullptr;
  cublasLtMatmulPreference_t preference = nullptr;
  REQUIRE(cublasLtCreate(&handle) == CUBLAS_STATUS_SUCCESS);
  REQUIRE(cublasLtMatmulDescCreate(&description, CUBLAS_COMPUTE_32F, CUDA_R_32F) == CUBLAS_STATUS_SUCCESS);
  const cublasOperation_t transposed = CUBLAS_OP_T;
  const cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_BIAS;
  const float* const bias = scene.device + 1;
  cublasLtMatmulDescSetAttribute(description, CUBLASLT_MATMUL_DESC_TRANSA, &transposed, sizeof(transposed));
  cublasLtMatmulDescSetAttribute(description, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof(epilogue));
  cublasLtMatmulDescSetAttribute(description, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias, sizeof(bias));
  cublasLtMatrixLayoutCreate(&layout_a, CUDA_R_32F, k, m, k);
  cublasLtMatrixLayoutCreate(&layout_b, CUDA_R_32F, k, n, k);
  cublasLtMatrixLayoutCreate(&layout_c, CUDA_R_32F, m, n, m + 1);
  cublasLtMatmulPreferenceCreate(&preference);
  const std::uint32_t alignment = 16;
  for (const auto attribute :
       {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES}) {
    cublasLtMatmulPreferenceSetAttribute(preference, attribute, &alignment, sizeof(alignment));
  }
  cublasLtMatmulHeuristicResult_t result{};
  int found = 0;
  REQUIRE(cublasLtMatmulAlgoGetHeuristic(handle, description, layout_a, layout_b, layout_c, layout_c, preference, 1,
                                         &result, &found) == CUBLAS_STATUS_SUCCESS);
  REQUIRE(found == 1);
  const float alpha = 2;
  const float beta = 3;
  float* const c = scene.device + 60;
  REQUIRE(cublasLtMatmul(handle, description, &alpha, scene.device, layout_a, scene.device + m * k, layout_b, &beta, c,
                         layout_c, c, layout_c, &result.algo, nullptr, 0, scene.first) == CUBLAS_STATUS_SUCCESS);
  CHECK(cublasLtMatmul(handle, description, &alpha, scene.device + 1, layout_a, scene.device + m * k, layout_b, &beta,
                       c, layout_c, c, layout_c, &result.algo, nullptr, 0, scene.first) == CUBLAS_STATUS_INVALID_VALUE);
  std::vector<float> values(count);
  REQUIRE(cudaMemcpyAsync(values.data(), scene.device, bytes, cudaMemcpyDeviceToHost, scene.first) == cudaSuccess);
  for (int j = 0; j < n; ++j) {
    for (int i = 0; i < m; ++i) {
      float sum = 0;
      for (int l = 0; l < k; ++l) sum += a[i * k + l] * b[j * k + l];
      const int at = 60 + j * (m + 1) + i;
      CHECK(values[static_cast<std::size_t>(at)] ==
            alpha * sum + beta * static_cast<float>(at) + static_cast<float>(1 + i));
    }
  }
  CHECK(values[63] == 63);  // between the columns
  cublasLtMatmulPreferenceDestroy(preference);
  for (const cublasLtMatrixLayout_t layout : {layout_a, layout_b, layout_c}) cublasLtMatrixLayoutDestroy(layout);
  cublasLtMatmulDescDestroy(description);
  cublasLtDestroy(handle);
}

// The last one of this program: afterwards the device answers nothing else.
TEST_CASE("zz: after an error of a kernel every call answers with it", "[error]") {
  Scene scene;
  launch(end_before_others, 1, 32, 0, scene.first, scene.device);
  CHECK(cudaStreamSynchronize(scene.first) == cudaErrorLaunchFailure);
  CHECK(cudaEventRecord(scene.event, scene.second) == cudaErrorLaunchFailure);
  CHECK(cudaStreamQuery(scene.second) == cudaErrorLaunchFailure);
  const std::string text = cudaGetErrorString(cudaErrorLaunchFailure);
  using Catch::Matchers::ContainsSubstring;
  CHECK_THAT(text, ContainsSubstring("runtime_test.cpp") && ContainsSubstring("thread (3, 0, 0)"));
}

}  // namespace skrull
