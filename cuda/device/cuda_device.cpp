#include "device/cuda_device.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <limits>
#include <new>
#include <utility>
#include <vector>

#include "device/cuda_check.h"
#include "device/gpu_peak.h"
#include "device/preferred_attention.h"
#include "kernel/calibration.h"
#include "ops/cuda_gemm.h"
#include "ops/cuda_ops.h"
#include "skrull/core/error.h"
#include "skrull/core/text.h"

namespace skrull {
namespace {

constexpr std::int64_t operation_scratch_bytes = std::int64_t{64} << 20;
/// A 32nd of a GPU's memory, 2.5 GB of 80, is room for the gradients of 32,768 rows of the 7B shape.
constexpr std::int64_t attention_scratch_share = 32;

std::int64_t total_bytes() {
  std::size_t free = 0;
  std::size_t total = 0;
  SKRULL_CUDA_CHECK(cudaMemGetInfo(&free, &total));
  return static_cast<std::int64_t>(total);
}

/// Who computes what, for people; empty where all is native.
std::string describe(const PreferredAttention& preferred) {
  if (preferred.forward && preferred.backward) return fmt::format("attention by {}", preferred.forward->name());
  if (preferred.forward) return fmt::format("attention's forward by {}", preferred.forward->name());
  if (preferred.backward) return fmt::format("attention's backward by {}", preferred.backward->name());
  return "";
}

}  // namespace

CudaDevice::CudaDevice(CudaGpu gpu, const AttentionChoice& attention) : gpu_(std::move(gpu)) {
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
  scratch_.emplace(*this, "scratch of operations", operation_scratch_bytes);
  scratch_->get(*compute_stream_, 0);  // now, not in the first step
  attention_scratch_.emplace(*this, "scratch of attention", total_bytes() / attention_scratch_share);
  auto preferred = preferred_attention(attention, gpu_, *this, *scratch_, *attention_scratch_);
  preferred_attention_ = describe(preferred);
  ops_ = std::make_unique<CudaOps>(*scratch_, std::make_unique<CudaGemm>(*scratch_), std::move(preferred));
}

CudaDevice::~CudaDevice() {
  ops_.reset();
  attention_scratch_.reset();
  scratch_.reset();
  // What is under way may still use memory of this object. After an error nobody knows whether it ends.
  if (!context_.progress->failed()) static_cast<void>(cudaDeviceSynchronize());
}

std::string CudaDevice::description() const {
  const CudaMachine& machine = cuda_machine();
  std::string text = fmt::format("{}, GPU {} of {} ({}), CUDA {}", gpu_.kind(), gpu_.index, machine.gpus.size(),
                                 gpu_.bus_id, format_cuda_version(machine.runtime_version));
  if (!preferred_attention_.empty()) text += ", " + preferred_attention_;
  if (ranks_here_ > 1) text += fmt::format(", shared by {} ranks", ranks_here_);
  return text;
}

void CudaDevice::copy_to_device(Stream& stream, TensorView target, const void* host) {
  CudaStream& queue = as_cuda_stream(stream);
  if (&queue == compute_stream_.get()) {
    staging_.to_device(queue, target, host, HostRead::at_once);
  } else if (is_pinned(host)) {
    copy_from_pinned(queue, target, host);
  } else {
    staging_.to_device(queue, target, host, HostRead::in_order);
  }
}

void CudaDevice::copy_to_host(Stream& stream, void* host, ConstTensorView source) {
  CudaStream& queue = as_cuda_stream(stream);
  if (is_pinned(host)) {
    copy_to_pinned(queue, host, source);
  } else {
    staging_.to_host(queue, host, source);
  }
}

bool CudaDevice::is_pinned(const void* host) const {
  const auto* address = static_cast<const char*>(host);
  const auto behind = host_memory_pieces_.upper_bound(address);
  if (behind == host_memory_pieces_.begin()) return false;
  const PinnedMemory& piece = std::prev(behind)->second;
  return piece.pinned() && address < piece.data() + piece.bytes();
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
  try {
    PinnedMemory piece(bytes);
    char* data = piece.data();
    std::memset(data, 0, static_cast<std::size_t>(bytes));
    host_memory_pieces_.emplace(data, std::move(piece));
    return data;
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}

void CudaDevice::free_on_host_raw(void* data, std::int64_t /*bytes*/) noexcept {
  host_memory_pieces_.erase(static_cast<const char*>(data));  // CUDA waits for copies
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

std::int64_t CudaDevice::peak_bytes() const {
  std::uint64_t peak = 0;
  SKRULL_CUDA_CHECK(cudaMemPoolGetAttribute(pool_, cudaMemPoolAttrReservedMemHigh, &peak));
  return static_cast<std::int64_t>(peak);
}

std::vector<std::string> CudaDevice::check_instructions() {
  return skrull::check_instructions(compute_stream_->handle());
}

double CudaDevice::peak_flops(DType dtype) {
  return nominal_peak_flops(gpu_, dtype);
}

bool built_with_cuda() {
  return true;
}

std::string cuda_problem() {
  return cuda_machine().problem;
}

std::unique_ptr<Device> make_cuda_device(int local_rank, const AttentionChoice& attention) {
  const CudaMachine& machine = cuda_machine();
  if (!machine.problem.empty()) {
    throw_invalid_input("no GPU to compute on: {}. Or use device=cpu.", machine.problem);
  }
  require(local_rank >= 0, "local rank {}", local_rank);
  const std::size_t index = static_cast<std::size_t>(local_rank) % machine.gpus.size();
  return std::make_unique<CudaDevice>(machine.gpus[index], attention);
}

}  // namespace skrull
