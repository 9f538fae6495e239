#pragma once
// How fast ranks exchange data, for a hardware profile.

#include <optional>

#include "skrull/comm/communicator.h"
#include "skrull/comm/mpi_session.h"
#include "skrull/device/device.h"
#include "skrull/schedule/hardware_profile.h"

namespace skrull {

struct MeasuredLinks {
  std::optional<LinkRate> intra_node;  ///< nothing where a node has one rank
  std::optional<LinkRate> inter_node;  ///< nothing where there is one node
};

/// Hops round a ring as in ring attention: every rank sends to the next one and receives from the one before, all at
/// once. The latency is the median hop of 8 bytes, the rate that of the median hop of 4 MiB without it. Rings are the
/// ranks of each node, and the ranks of equal place on all nodes. Collective; the same result, of the slowest rank, on
/// every rank.
MeasuredLinks measure_links(const MpiSession& session, Device& device);

/// The profile with these links, and where they come from.
void set_links(HardwareProfile& profile, const MeasuredLinks& links, int ranks);

}  // namespace skrull
