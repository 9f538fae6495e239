#include "device/cuda_device.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <limits>
#include <utility>
#include <vector>

#include "device/cuda_check.h"
#include "ops/cuda_gemm.h"
#include "ops/cuda_ops.h"
#include "skrull/core/error.h"
#include "skrull/core/rng.h"
#include "skrull/core/text.h"
#include "skrull/device/stream_stopwatch.h"

namespace skrull {

CudaDevice::CudaDevice(CudaGpu gpu) : gpu_(std::move(gpu)) {
  SKRULL_CUDA_CHECK(cudaSetDevice(gpu_.index));
  SKRULL_CUDA_CHECK(cudaDeviceGetDefaultMemPool(&pool_, gpu_.index));
  std::uint64_t keep_all = std::numeric_limits<std::uint64_t>::max();
  SKRULL_CUDA_CHECK(cudaMemPoolSetAttribute(pool_, cudaMemPoolAttrReleaseThreshold, &keep_all));
  context_ = make_cuda_stream_context();
  int least = 0;
  int greatest = 0;
  SKRULL_CUDA_CHECK(cudaDeviceGetStreamPriorityRange(&least, &greatest));
  compute_stream_ = std::make_unique<CudaStream>(least, context_);
  communication_stream_ = std::make_unique<CudaStream>(greatest, context_);  // its kernels are short and awaited
  scratch_.emplace(*this, *compute_stream_);
  ops_ = std::make_unique<CudaOps>(*scratch_, std::make_unique<CudaGemm>(*scratch_));
}

CudaDevice::~CudaDevice() {
  ops_.reset();
  scratch_.reset();
  // What is under way may still use memory of this object. After an error nobody knows whether it ends.
  if (!context_.progress->failed()) static_cast<void>(cudaDeviceSynchronize());
}

std::string CudaDevice::description() const {
  const CudaMachine& machine = cuda_machine();
  std::string text = fmt::format("{} (GPU {} of {}, {}), compute capability {}.{}, {} multiprocessors, CUDA {}",
                                 gpu_.name, gpu_.index, machine.gpus.size(), gpu_.bus_id, gpu_.major, gpu_.minor,
                                 gpu_.multiprocessors, format_cuda_version(machine.runtime_version));
  if (ranks_here_ > 1) text += fmt::format(", shared by {} ranks", ranks_here_);
  return text;
}

void CudaDevice::copy_to_device(Stream& stream, TensorView target, const void* host) {
  if (is_own_host_memory(host)) {
    copy_pinned_to_device(as_cuda_stream(stream), target, host);
  } else {
    staging_.to_device(as_cuda_stream(stream), target, host);
  }
}

void CudaDevice::copy_to_host(Stream& stream, void* host, ConstTensorView source) {
  if (is_own_host_memory(host)) {
    copy_to_pinned(as_cuda_stream(stream), host, source);
  } else {
    staging_.to_host(as_cuda_stream(stream), host, source);
  }
}

void* CudaDevice::allocate_raw(std::int64_t bytes) {
  void* memory = nullptr;
  const auto size = static_cast<std::size_t>(bytes);
  const cudaError_t code = cudaMallocFromPoolAsync(&memory, size, pool_, compute_stream_->handle());
  if (code == cudaErrorMemoryAllocation) {
    static_cast<void>(cudaGetLastError());
    return nullptr;
  }
  check_cuda(code, "cudaMallocFromPoolAsync", __FILE__, __LINE__);
  SKRULL_CUDA_CHECK(cudaMemsetAsync(memory, 0, size, compute_stream_->handle()));
  compute_stream_->synchronize();  // any stream may use it
  return memory;
}

// Behind what both streams may still do with it.
void CudaDevice::free_raw(void* data, std::int64_t /*bytes*/) noexcept {
  try {
    compute_stream_->wait(communication_stream_->record());
  } catch (...) {  // the device has failed: its memory goes with the process
    return;
  }
  static_cast<void>(cudaFreeAsync(data, compute_stream_->handle()));
}

void* CudaDevice::allocate_on_host_raw(std::int64_t bytes) {
  void* memory = nullptr;
  if (cudaMallocHost(&memory, static_cast<std::size_t>(bytes)) != cudaSuccess) {
    static_cast<void>(cudaGetLastError());
    return nullptr;
  }
  std::memset(memory, 0, static_cast<std::size_t>(bytes));
  own_host_memory_.emplace(static_cast<const char*>(memory), bytes);
  return memory;
}

void CudaDevice::free_on_host_raw(void* data, std::int64_t /*bytes*/) noexcept {
  own_host_memory_.erase(static_cast<const char*>(data));
  static_cast<void>(cudaFreeHost(data));  // waits for the copies under way
}

bool CudaDevice::is_own_host_memory(const void* memory) const {
  const auto* address = static_cast<const char*>(memory);
  const auto after = own_host_memory_.upper_bound(address);
  if (after == own_host_memory_.begin()) return false;
  const auto& [begin, bytes] = *std::prev(after);
  return address < begin + bytes;
}

std::int64_t CudaDevice::free_bytes() const {
  std::size_t free = 0;
  std::size_t total = 0;
  SKRULL_CUDA_CHECK(cudaMemGetInfo(&free, &total));
  std::uint64_t reserved = 0;
  std::uint64_t used = 0;
  SKRULL_CUDA_CHECK(cudaMemPoolGetAttribute(pool_, cudaMemPoolAttrReservedMemCurrent, &reserved));
  SKRULL_CUDA_CHECK(cudaMemPoolGetAttribute(pool_, cudaMemPoolAttrUsedMemCurrent, &used));
  const auto here = static_cast<std::int64_t>(free) / ranks_here_;
  return here + static_cast<std::int64_t>(reserved - used);
}

double CudaDevice::peak_flops(DType dtype) {
  const auto [entry, is_new] = peak_flops_.try_emplace(dtype, 0.0);
  if (is_new) entry->second = measure_peak(dtype);
  return entry->second;
}

/// Products of zeros would draw less power than others do, and run faster for it.
void CudaDevice::fill_with_noise(TensorView vector) {
  std::vector<float> noise(std::size_t{1} << 20);
  Rng rng(1, "measurement");
  for (float& value : noise) value = static_cast<float>(rng.uniform()) - 0.5F;
  const auto part = static_cast<std::int64_t>(noise.size());
  const Buffer staged = allocate(DType::float32, 1, part, "measurement");
  copy_to_device(*compute_stream_, staged.view(DType::float32, 1, part), noise.data());
  for (std::int64_t begin = 0; begin < vector.elements(); begin += part) {
    const std::int64_t count = std::min(part, vector.elements() - begin);
    ops_->cast(*compute_stream_, staged.view(DType::float32, 1, count), vector.slice_cols(begin, count));
  }
}

/// The best of several large products; of smaller ones where memory is short.
double CudaDevice::measure_peak(DType dtype) {
  std::int64_t n = 8192;
  while (n > 512 && 3 * n * n * size_of(dtype) > free_bytes() / 2) n /= 2;
  const Buffer a = allocate(dtype, n, n, "measurement");
  const Buffer b = allocate(dtype, n, n, "measurement");
  const Buffer c = allocate(dtype, n, n, "measurement");
  fill_with_noise(a.view(dtype, 1, n * n));
  fill_with_noise(b.view(dtype, 1, n * n));
  Gemm gemm;
  gemm.a = a.view(dtype, n, n);
  gemm.b = b.view(dtype, n, n);
  gemm.c = c.view(dtype, n, n);
  gemm.transpose_b = true;
  ops_->gemm(*compute_stream_, gemm);
  double best_seconds = std::numeric_limits<double>::infinity();
  for (double all_seconds = 0; all_seconds < 0.1;) {
    const StreamStopwatch watch(*compute_stream_);
    ops_->gemm(*compute_stream_, gemm);
    const double seconds = std::max(watch.seconds(), 1e-7);
    best_seconds = std::min(best_seconds, seconds);
    all_seconds += seconds;
  }
  const auto size = static_cast<double>(n);
  return 2.0 * size * size * size / best_seconds;
}

bool built_with_cuda() {
  return true;
}

std::string cuda_problem() {
  return cuda_machine().problem;
}

std::unique_ptr<Device> make_cuda_device(int local_rank) {
  const CudaMachine& machine = cuda_machine();
  if (!machine.problem.empty()) {
    throw_invalid_input("no GPU to compute on: {}. Or use device=cpu.", machine.problem);
  }
  require(local_rank >= 0, "local rank {}", local_rank);
  return std::make_unique<CudaDevice>(machine.gpus[static_cast<std::size_t>(local_rank) % machine.gpus.size()]);
}

}  // namespace skrull
