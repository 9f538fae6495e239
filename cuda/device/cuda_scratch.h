#pragma once

#include <cstdint>
#include <map>

#include "device/cuda_stream.h"
#include "ops/cuda_ops.h"
#include "skrull/device/device.h"

namespace skrull {

/// Scratch memory for operations, a piece for each stream that asks, taken from the device at the first one. A piece
/// for the compute stream is there from the start.
class DeviceScratch final : public CudaScratch {
 public:
  DeviceScratch(Device& device, Stream& compute_stream);

  void* get(Stream& stream, std::int64_t bytes) override;
  std::int64_t capacity() const override { return piece_bytes; }

  static constexpr std::int64_t piece_bytes = std::int64_t{64} << 20;

 private:
  Buffer& piece_of(Stream& stream);

  Device& device_;
  std::map<Stream*, Buffer> pieces_;
};

}  // namespace skrull
