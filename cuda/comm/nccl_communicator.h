#pragma once

#include <memory>
#include <string>

#include "device/cuda_device.h"
#include "skrull/comm/communicator.h"

namespace skrull {

/// "2.28.9"; empty in a build without NCCL.
std::string nccl_version();

/// Over NCCL: every rank has a GPU of its own. `host` spans the same ranks over host memory. While the host waits for
/// the device, errors that NCCL finds, and operations that other ranks don't join for `timeout_seconds` (0: wait for
/// ever), end as RunFailure. Collective.
std::unique_ptr<Communicator> make_nccl_communicator(CudaDevice& device, std::unique_ptr<Communicator> host,
                                                     double timeout_seconds);

}  // namespace skrull
