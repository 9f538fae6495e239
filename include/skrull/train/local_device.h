#pragma once

#include <memory>

#include "skrull/config/choices.h"
#include "skrull/device/device.h"

namespace skrull {

/// Whether this choice means a GPU here.
bool uses_cuda(DeviceChoice choice);

/// A device for one process alone, or for `local_rank` of a node that all choose alike. `threads` of a CPU: 0: all;
/// `attention` of a GPU. Throws InvalidInput with the reason when cuda or an engine was asked for and there is none.
std::unique_ptr<Device> make_local_device(DeviceChoice choice, int threads, int local_rank = 0,
                                          const AttentionChoice& attention = {});

}  // namespace skrull
