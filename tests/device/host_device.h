#pragma once
// A device over host memory with any operations: for operations that are wrapped, or emulated.

#include <cstdlib>
#include <cstring>

#include "skrull/device/device.h"
#include "skrull/device/ops.h"

namespace skrull::test {

class HostDevice final : public Device {
 public:
  /// `ops` must outlive this. `stream` runs what they queue.
  explicit HostDevice(Ops& ops, Stream& stream = caller_stream()) : ops_(ops), stream_(stream) {}

  DeviceKind kind() const override { return DeviceKind::cpu; }
  std::string description() const override { return "host memory"; }
  Ops& ops() override { return ops_; }
  Stream& compute_stream() override { return stream_; }
  Stream& communication_stream() override { return stream_; }

  void copy_to_device(Stream& /*stream*/, TensorView target, const void* host) override {
    const std::int64_t row_bytes = target.cols() * size_of(target.dtype());
    for (std::int64_t row = 0; row < target.rows(); ++row) {
      std::memcpy(target.slice_rows(row, 1).data(), static_cast<const char*>(host) + row * row_bytes,
                  static_cast<std::size_t>(row_bytes));
    }
  }
  void copy_to_host(Stream& /*stream*/, void* host, ConstTensorView source) override {
    const std::int64_t row_bytes = source.cols() * size_of(source.dtype());
    for (std::int64_t row = 0; row < source.rows(); ++row) {
      std::memcpy(static_cast<char*>(host) + row * row_bytes, source.slice_rows(row, 1).data(),
                  static_cast<std::size_t>(row_bytes));
    }
  }

  double peak_flops(DType /*dtype*/) override { return 1; }
  std::int64_t free_bytes() const override { return std::int64_t{1} << 30; }
  std::int64_t peak_bytes() const override { return memory().peak_bytes(); }

 protected:
  /// Exactly as many bytes as were asked for: the address sanitizer sees the end.
  void* allocate_raw(std::int64_t bytes) override {
    void* data = nullptr;
    const auto size = static_cast<std::size_t>(bytes > 0 ? bytes : 1);
    if (posix_memalign(&data, 256, size) != 0) return nullptr;
    return std::memset(data, 0, size);
  }
  void free_raw(void* data, std::int64_t /*bytes*/) noexcept override { std::free(data); }

 private:
  Ops& ops_;
  Stream& stream_;
};

}  // namespace skrull::test
