#pragma once
// Copies between device memory and host memory, queued on a stream. Pinned memory is copied from and to by the device
// itself; other memory by way of pinned memory, so that the host does not wait.

#include <cuda_runtime_api.h>

#include <array>
#include <cstdint>
#include <map>

#include "device/cuda_stream.h"
#include "device/pinned_memory.h"
#include "skrull/core/tensor.h"

namespace skrull {

/// `host` is pinned.
void copy_from_pinned(CudaStream& stream, TensorView target, const void* host);
void copy_to_pinned(CudaStream& stream, void* host, ConstTensorView source);

/// When the host memory of a copy to the device is read.
enum class HostRead {
  at_once,  ///< before the call returns
  in_order  ///< by a host task of the stream
};

/// A ring of pieces of pinned memory that data passes through: a piece is used again when all that was in it has left,
/// so the host may be as far ahead of the device as the ring is long. One thread calls.
class CopyStaging {
 public:
  explicit CopyStaging(std::int64_t piece_bytes = std::int64_t{4} << 20) : piece_bytes_(piece_bytes) {}

  void to_device(CudaStream& stream, TensorView target, const void* host, HostRead read);
  /// `host` is written by a host task of the stream.
  void to_host(CudaStream& stream, void* host, ConstTensorView source);

 private:
  struct Piece {
    PinnedMemory memory;
    std::int64_t used = 0;
    std::map<CudaStream*, Event> last_copies;  ///< of what is in it
  };

  /// Room for `bytes`, at most a piece, in the piece that is current afterwards.
  char* reserve(std::int64_t bytes);
  /// A copy from or to the room reserved last was queued.
  void queued(CudaStream& stream) { ring_[current_].last_copies[&stream] = stream.record(); }

  std::int64_t piece_bytes_;
  std::array<Piece, 4> ring_;
  std::size_t current_ = 0;
};

}  // namespace skrull
