#pragma once
// One GPU: memory from the driver's stream-ordered pool, a compute and a communication stream, copies through pinned
// memory, and the operations of cuda/ops.

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "device/copy_staging.h"
#include "device/cuda_machine.h"
#include "device/cuda_scratch.h"
#include "device/cuda_stream.h"
#include "skrull/device/device.h"

namespace skrull {

class CudaDevice final : public Device {
 public:
  /// Makes `gpu` the calling thread's; all calls must come from that thread.
  explicit CudaDevice(CudaGpu gpu, const AttentionChoice& attention = {});
  ~CudaDevice() override;
  CudaDevice(const CudaDevice&) = delete;
  CudaDevice& operator=(const CudaDevice&) = delete;

  DeviceKind kind() const override { return DeviceKind::cuda; }
  std::string description() const override;
  Ops& ops() override { return *ops_; }
  Stream& compute_stream() override { return *compute_stream_; }
  Stream& communication_stream() override { return *communication_stream_; }

  void copy_to_device(Stream& stream, TensorView target, const void* host) override;
  void copy_to_host(Stream& stream, void* host, ConstTensorView source) override;

  std::vector<std::string> check_instructions() override;
  double peak_flops(DType dtype) override;
  /// An equal share of it where several ranks compute on this GPU.
  std::int64_t free_bytes() const override;
  std::int64_t peak_bytes() const override;

  const CudaGpu& gpu() const { return gpu_; }
  CudaProgress& progress() { return *context_.progress; }
  /// How many ranks of the run compute on this GPU, once that is known.
  void set_ranks_here(int ranks) { ranks_here_ = ranks; }

 protected:
  void* allocate_raw(std::int64_t bytes) override;
  void free_raw(void* data, std::int64_t bytes) noexcept override;
  void* allocate_on_host_raw(std::int64_t bytes) override;
  void free_on_host_raw(void* data, std::int64_t bytes) noexcept override;

 private:
  /// Whether `host` lies in memory of allocate_on_host() that the GPU reaches by itself.
  bool is_pinned(const void* host) const;

  CudaGpu gpu_;
  std::string preferred_attention_;  ///< for people; empty: none
  int ranks_here_ = 1;
  CudaStreamContext context_;
  std::unique_ptr<CudaStream> compute_stream_;
  std::unique_ptr<CudaStream> communication_stream_;
  cudaMemPool_t pool_ = nullptr;  ///< the driver's
  CopyStaging staging_;
  std::map<const char*, PinnedMemory> host_memory_pieces_;  ///< by address
  std::optional<DeviceScratch> scratch_;
  std::optional<DeviceScratch> attention_scratch_;  ///< of its backward, by the preferred engine
  std::unique_ptr<Ops> ops_;
};

}  // namespace skrull
