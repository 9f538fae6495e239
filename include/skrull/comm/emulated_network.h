#pragma once
// A network of any speed between ranks of one machine: what a cluster's links would make of a run, measured.

#include <cstdint>
#include <memory>
#include <vector>

#include "skrull/comm/communicator.h"
#include "skrull/device/device.h"
#include "skrull/schedule/hardware_profile.h"

namespace skrull {

struct EmulatedNetwork {
  LinkRate intra_node;  ///< of each rank, in each direction
  LinkRate inter_node;  ///< likewise
  int ranks_per_node = 1;
};

/// How long a transfer takes when all that take part are ready, in seconds.
///
/// A group of messages: those over one kind of link share it, sending and receiving at once, and both kinds of link
/// work at once; a kind that has messages takes its latency once.
struct ExchangedBytes {
  std::int64_t intra_node_sent = 0;
  std::int64_t intra_node_received = 0;
  std::int64_t inter_node_sent = 0;
  std::int64_t inter_node_received = 0;
};
double exchange_seconds(const EmulatedNetwork& network, const ExchangedBytes& bytes);
/// Collectives as rings of all ranks over the slowest link between them: ranks - 1 steps of a part each for a
/// reduce-scatter or an all-gather of `bytes` in all, twice as many for an all-reduce.
double ring_collective_seconds(const LinkRate& link, int ranks, double bytes);

/// `communicator` over this network: an operation begins when every rank that takes part has reached it on its stream's
/// clock, takes as long as the formulas above say, and the stream's clock stands at its end when it is done. Data
/// travels through `communicator` itself: on the wall's clock (all ranks on one host) an operation that takes longer
/// there than the network says just takes longer. World rank i is on node i / ranks_per_node; communicators split from
/// this one are over the same network.
std::unique_ptr<Communicator> make_emulated_communicator(std::unique_ptr<Communicator> communicator,
                                                         const EmulatedNetwork& network);

/// Makes both streams of every rank's device stand at one time, that of the latest: for measurements over ranks.
/// Collective over `communicator`.
void start_together(Device& device, Communicator& communicator);

}  // namespace skrull
