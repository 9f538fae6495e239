#pragma once

#include <memory>

#include "skrull/comm/communicator.h"
#include "skrull/device/device.h"

namespace skrull {

/// Over the memory of a CUDA device, through pinned host memory: a copy out, `host`'s operation as a task of the
/// stream, a copy in, piece by piece. Any number of ranks may share a GPU. Sums are `host`'s. All calls must be for one
/// stream of `device`, which must outlive this. `piece_bytes` must be the same on all ranks.
std::unique_ptr<Communicator> make_staged_communicator(Device& device, std::unique_ptr<Communicator> host,
                                                       std::int64_t piece_bytes = std::int64_t{8} << 20);

}  // namespace skrull
