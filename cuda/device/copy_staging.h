#pragma once
// Copies between device memory and any host memory, which neither keep the host waiting nor read the caller's memory
// after the call.

#include <cuda_runtime_api.h>

#include <array>
#include <cstdint>

#include "device/cuda_stream.h"
#include "device/pinned_memory.h"
#include "skrull/core/tensor.h"

namespace skrull {

/// Between device memory and pinned host memory, in the order of the stream: both must stay until it has passed. The
/// matrix on the host has no gaps.
void copy_pinned_to_device(CudaStream& stream, TensorView target, const void* host);
void copy_to_pinned(CudaStream& stream, void* host, ConstTensorView source);

/// A ring of pieces of pinned memory that data passes through. One thread calls.
class CopyStaging {
 public:
  explicit CopyStaging(std::int64_t piece_bytes = std::int64_t{4} << 20) : piece_bytes_(piece_bytes) {}

  /// `host` holds target.elements() elements; it is read before this returns.
  void to_device(CudaStream& stream, TensorView target, const void* host);
  /// `host` is written by a host task of the stream.
  void to_host(CudaStream& stream, void* host, ConstTensorView source);

 private:
  struct Piece {
    PinnedMemory memory;
    Event free;  ///< what was in it has left
  };

  /// The next piece, once it is free.
  Piece& next();

  std::int64_t piece_bytes_;
  std::array<Piece, 4> ring_;
  std::size_t next_ = 0;
};

}  // namespace skrull
