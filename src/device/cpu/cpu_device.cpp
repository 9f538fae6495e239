#include <omp.h>
#include <sched.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <dnnl.hpp>
#include <map>

#include "cpu/cpu_ops.h"
#include "cpu/host_memory.h"
#include "host_stream.h"
#include "skrull/core/error.h"
#include "skrull/core/process.h"
#include "skrull/device/device.h"
#include "skrull/device/stream_stopwatch.h"

namespace skrull {

namespace {

/// OMP_NUM_THREADS where the user set it, else the processors this process is bound to.
int usable_threads() {
  // Not by asking OpenMP: a device made earlier may have changed its answer.
  const char* wanted = std::getenv("OMP_NUM_THREADS");
  if (wanted != nullptr && std::atoi(wanted) > 0) return std::atoi(wanted);
  cpu_set_t processors;
  CPU_ZERO(&processors);
  if (::sched_getaffinity(0, sizeof(processors), &processors) != 0) return std::max(1, omp_get_num_procs());
  return std::max(1, CPU_COUNT(&processors));
}

/// What the user asked for, or all.
int checked_threads(int threads) {
  if (threads < 0) throw_invalid_input("cannot compute with {} threads: give a positive number, or 0 for all", threads);
  return threads == 0 ? usable_threads() : threads;
}

/// The instruction set that oneDNN's kernels use.
std::string instruction_set() {
  switch (dnnl::get_effective_cpu_isa()) {
    case dnnl::cpu_isa::sse41:
      return "SSE4.1";
    case dnnl::cpu_isa::avx:
      return "AVX";
    case dnnl::cpu_isa::avx2:
      return "AVX2";
    case dnnl::cpu_isa::avx512_core:
      return "AVX-512";
    case dnnl::cpu_isa::avx512_core_vnni:
      return "AVX-512 VNNI";
    case dnnl::cpu_isa::avx512_core_bf16:
      return "AVX-512 bf16";
    case dnnl::cpu_isa::avx512_core_amx:
      return "AVX-512 AMX";
    default:
      return __builtin_cpu_supports("avx512f") != 0 ? "AVX-512 or better" : "generic instructions";
  }
}

class CpuDevice : public Device {
 public:
  CpuDevice(int threads, TimeSource time, std::unique_ptr<Stream> compute_stream)
      : threads_(threads),
        compute_stream_(std::move(compute_stream)),
        ops_(threads, *compute_stream_),
        communication_stream_(time == TimeSource::wall ? make_steady_clock() : make_still_clock()) {
    omp_set_num_threads(threads);
  }
  ~CpuDevice() override { compute_stream_.reset(); }  // its thread, where it has one, may still be inside an operation
  CpuDevice(const CpuDevice&) = delete;
  CpuDevice& operator=(const CpuDevice&) = delete;

  DeviceKind kind() const override { return DeviceKind::cpu; }
  std::string description() const override {
    const dnnl_version_t& version = *dnnl_version();
    return fmt::format("CPU, {} thread{}, {}, oneDNN {}.{}.{}", threads_, threads_ == 1 ? "" : "s", instruction_set(),
                       version.major, version.minor, version.patch);
  }

  Ops& ops() override { return ops_; }
  Stream& compute_stream() override { return *compute_stream_; }
  Stream& communication_stream() override { return communication_stream_; }

  void copy_to_device(Stream& stream, TensorView target, const void* host) override {
    const ConstTensorView source(host, target.dtype(), target.rows(), target.cols());
    ops_.cast(stream, source, target);
  }
  void copy_to_host(Stream& stream, void* host, ConstTensorView source) override {
    const TensorView target(host, source.dtype(), source.rows(), source.cols());
    ops_.cast(stream, source, target);
  }

  double peak_flops(DType dtype) override {
    const auto [entry, is_new] = peak_flops_.try_emplace(dtype, 0.0);
    if (is_new) entry->second = measure_peak(dtype);
    return entry->second;
  }
  std::int64_t free_bytes() const override { return available_host_memory(); }
  std::int64_t peak_bytes() const override { return peak_process_memory(); }

 protected:
  void* allocate_raw(std::int64_t bytes) override { return allocate_pages(bytes); }
  void free_raw(void* data, std::int64_t bytes) noexcept override { free_pages(data, bytes); }

 private:
  /// The best of several products of the size of an MLP projection (2048 tokens, 896 -> 4864).
  double measure_peak(DType dtype) {
    constexpr std::int64_t m = 2048;
    constexpr std::int64_t k = 896;
    constexpr std::int64_t n = 4864;
    const Buffer a = allocate(dtype, m, k, "measurement");
    const Buffer b = allocate(dtype, n, k, "measurement");
    const Buffer c = allocate(dtype, m, n, "measurement");
    Gemm gemm;
    gemm.a = a.view(dtype, m, k);
    gemm.b = b.view(dtype, n, k);
    gemm.c = c.view(dtype, m, n);
    gemm.transpose_b = true;
    ops_.gemm(*compute_stream_, gemm);
    double best_seconds = 1e30;
    double all_seconds = 0;
    while (all_seconds < 0.25) {
      const StreamStopwatch watch(*compute_stream_);
      ops_.gemm(*compute_stream_, gemm);
      const double seconds = watch.seconds();
      best_seconds = std::min(best_seconds, seconds);
      all_seconds += seconds;
    }
    return 2.0 * m * n * k / best_seconds;
  }

  int threads_;
  std::unique_ptr<Stream> compute_stream_;
  CpuOps ops_;
  QueueStream communication_stream_;  ///< last: its thread may still be inside an operation
  std::map<DType, double> peak_flops_;
};

}  // namespace

std::unique_ptr<Device> make_cpu_device(int threads, TimeSource time) {
  require(time == TimeSource::wall || threads == 1, "processor time is that of one thread, not of {}", threads);
  return std::make_unique<CpuDevice>(
      checked_threads(threads), time,
      std::make_unique<InlineStream>(time == TimeSource::wall ? make_steady_clock() : make_processor_clock()));
}

std::unique_ptr<Device> make_background_cpu_device(int threads) {
  return std::make_unique<CpuDevice>(checked_threads(threads), TimeSource::wall, std::make_unique<QueueStream>());
}

}  // namespace skrull
