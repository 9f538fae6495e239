#pragma once
// A compute device: memory, streams, copies, and the numeric operations (Ops) on it.

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "skrull/config/choices.h"
#include "skrull/core/tensor.h"
#include "skrull/device/stream.h"
#include "skrull/device/timeline.h"

namespace skrull {

class Ops;
class Device;

/// Where a buffer lies.
enum class MemoryPlace {
  device,
  host  ///< read and written by the host; copies between it and the device run at full speed and behind other work
};

/// Owned memory, 64-byte aligned, zero-filled. Move-only; must not outlive its device.
class Buffer {
 public:
  Buffer() = default;
  Buffer(Device& device, MemoryPlace place, void* data, std::int64_t bytes, std::string category);
  ~Buffer();
  Buffer(Buffer&& other) noexcept;
  Buffer& operator=(Buffer&& other) noexcept;

  void* data() const { return data_; }
  std::int64_t bytes() const { return bytes_; }
  /// A rows x cols matrix that starts `byte_offset` bytes into the buffer. Throws RunFailure when it does not fit.
  TensorView view(DType dtype, std::int64_t rows, std::int64_t cols, std::int64_t byte_offset = 0) const;

 private:
  Device* device_ = nullptr;
  MemoryPlace place_ = MemoryPlace::device;
  void* data_ = nullptr;
  std::int64_t bytes_ = 0;
  std::string category_;
};

/// Bytes held now and at most, by category ("parameters", "gradients", "activations", ...). This is the planned memory
/// table: everything a step needs is allocated before the first step.
class MemoryLedger {
 public:
  void add(const std::string& category, std::int64_t bytes);
  void remove(const std::string& category, std::int64_t bytes);
  std::int64_t current_bytes() const { return current_; }
  std::int64_t peak_bytes() const { return peak_; }
  const std::map<std::string, std::int64_t>& by_category() const { return by_category_; }

 private:
  std::map<std::string, std::int64_t> by_category_;
  std::int64_t current_ = 0;
  std::int64_t peak_ = 0;
};

enum class DeviceKind { cpu, cuda };

class Device {
 public:
  virtual ~Device() = default;

  virtual DeviceKind kind() const = 0;
  /// For people: "CPU, 2 threads, AVX-512, oneDNN 2.6.3".
  virtual std::string description() const = 0;

  virtual Ops& ops() = 0;
  virtual Stream& compute_stream() = 0;
  virtual Stream& communication_stream() = 0;
  /// What the streams did when.
  Timeline& timeline() { return timeline_; }

  /// Throws RunFailure with the memory table when the device has no more memory.
  Buffer allocate(std::int64_t bytes, std::string category);
  /// A buffer of exactly rows x cols elements.
  Buffer allocate(DType dtype, std::int64_t rows, std::int64_t cols, std::string category);
  const MemoryLedger& memory() const { return memory_; }
  /// The same in host memory. Throws RunFailure when the host has no more.
  Buffer allocate_on_host(DType dtype, std::int64_t rows, std::int64_t cols, std::string category);
  const MemoryLedger& host_memory() const { return host_memory_; }

  /// Host memory -> device. `host` (any host memory) holds target.elements() elements, contiguous. On the compute
  /// stream it is read before this returns; on others when the stream gets there, and may be reused when it has passed.
  virtual void copy_to_device(Stream& stream, TensorView target, const void* host) = 0;
  /// Device -> host memory. The values are there once `stream` was synchronised.
  virtual void copy_to_host(Stream& stream, void* host, ConstTensorView source) = 0;

  /// Runs the special instructions that its operations rely on and compares with their definitions: a line for each
  /// that differs.
  virtual std::vector<std::string> check_instructions() { return {}; }

  /// FLOP/s of dense matrix products of `dtype` at the most, the "peak" of the MFU: of a GPU its data sheet's; of a CPU
  /// as measured, once.
  virtual double peak_flops(DType dtype) = 0;
  /// Bytes of memory free for allocation now. CPU: all that is available on the machine, whoever takes it; CUDA: this
  /// rank's share of its GPU.
  virtual std::int64_t free_bytes() const = 0;
  /// Most memory that this process had taken of the device so far, what lies unused between allocations included. CPU:
  /// of the machine, whoever in the process took it.
  virtual std::int64_t peak_bytes() const = 0;

 protected:
  friend class Buffer;
  virtual void* allocate_raw(std::int64_t bytes) = 0;  ///< nullptr when out of memory; zero-filled otherwise
  virtual void free_raw(void* data, std::int64_t bytes) noexcept = 0;
  /// Where the device's memory is the host's, so is this.
  virtual void* allocate_on_host_raw(std::int64_t bytes) { return allocate_raw(bytes); }
  virtual void free_on_host_raw(void* data, std::int64_t bytes) noexcept { free_raw(data, bytes); }
  MemoryLedger memory_;
  MemoryLedger host_memory_;
  Timeline timeline_;
};

/// What the time on a device's streams is.
enum class TimeSource {
  wall,
  /// The compute stream's is its thread's processor time: as if it had a core of its own, however many processes share
  /// it. The communication stream's passes only by what its tasks say (comm/emulated_network.h).
  processor
};

/// Number of compute threads 0 = all the process may use. Processor time counts one thread alone.
std::unique_ptr<Device> make_cpu_device(int threads = 0, TimeSource time = TimeSource::wall);
/// A CPU device whose compute stream is a queue with a thread of its own: for host work beside another device's.
std::unique_ptr<Device> make_background_cpu_device(int threads = 0);

/// What computes attention on a GPU.
struct AttentionChoice {
  AttentionEngineChoice engine = AttentionEngineChoice::automatic;
  bool deterministic = true;  ///< gradients have the same bits every time
};

/// The CUDA device of this local rank; throws InvalidInput with the reason when this build or machine has none.
/// Throws it too when `attention` asks for an engine that it does not have.
std::unique_ptr<Device> make_cuda_device(int local_rank, const AttentionChoice& attention = {});
bool built_with_cuda();
/// Why make_cuda_device() would find no usable GPU, for people; empty when it would. Starts nothing on a GPU.
std::string cuda_problem();
inline bool cuda_available() {
  return cuda_problem().empty();
}

}  // namespace skrull
