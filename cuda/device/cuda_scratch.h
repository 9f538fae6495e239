#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "device/cuda_stream.h"
#include "ops/cuda_ops.h"
#include "skrull/device/device.h"

namespace skrull {

/// Scratch memory for operations, a piece of `piece_bytes` for each stream that asks, taken from the device when it
/// first does.
class DeviceScratch final : public CudaScratch {
 public:
  DeviceScratch(Device& device, std::string category, std::int64_t piece_bytes);

  void* get(Stream& stream, std::int64_t bytes) override;
  std::int64_t capacity() const override { return piece_bytes_; }

 private:
  Buffer& piece_of(Stream& stream);

  Device& device_;
  std::string category_;
  std::int64_t piece_bytes_;
  std::map<Stream*, Buffer> pieces_;
};

}  // namespace skrull
