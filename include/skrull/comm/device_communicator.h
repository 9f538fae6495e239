#pragma once
// The communicator for data in the memory of a device.

#include <memory>

#include "skrull/comm/communicator.h"
#include "skrull/comm/mpi_session.h"
#include "skrull/device/device.h"

namespace skrull {

/// All ranks, over the memory of their devices, for streams of `device`, which must outlive it. Host memory travels by
/// MPI; a GPU's by NCCL where every rank has a GPU of its own and the build has NCCL, else by MPI through pinned host
/// memory. Collective. Throws InvalidInput on all ranks together when their GPUs are of different kinds.
std::unique_ptr<Communicator> make_device_communicator(Device& device, const MpiSession& session,
                                                       const MessageLimits& limits = {});

/// The accelerator's part of it: `host` spans the same ranks over host memory, `device` is a CUDA device.
std::unique_ptr<Communicator> make_cuda_communicator(Device& device, std::unique_ptr<Communicator> host,
                                                     double timeout_seconds);

}  // namespace skrull
