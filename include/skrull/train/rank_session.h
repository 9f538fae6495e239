#pragma once
// What one rank runs on: its place in the grid, its device, and the way to the other ranks.

#include <memory>
#include <string>

#include "skrull/comm/communicator.h"
#include "skrull/comm/mpi_session.h"
#include "skrull/comm/rank_grid.h"
#include "skrull/config/train_config.h"
#include "skrull/device/device.h"
#include "skrull/schedule/plan.h"

namespace skrull {

/// Whether a run of this config computes on a GPU here.
bool uses_cuda(const TrainConfig& config);

/// Device and communication of one rank, in the order in which they must be made and destroyed.
class RankSession {
 public:
  /// Spreads the node's ranks over its cores (cpu_binding), makes the device (device: auto prefers a GPU, all ranks or
  /// none) and the communicators over all ranks and over those of this replica, over an emulated network when the
  /// config has one. Collective. Throws InvalidInput on all ranks when cuda was asked for and is not there, when only
  /// some have a GPU, or with a GPU and an emulated network.
  RankSession(const TrainConfig& config, const MpiSession& session);

  const RankGrid& grid() const { return grid_; }
  const Topology& topology() const { return topology_; }
  Device& device() { return *device_; }
  Communicator& world() { return *world_; }
  /// The ranks of this replica, in the order of their context rank.
  Communicator& context() { return *context_; }
  ControlChannel& control() { return control_; }
  /// Which cores this rank computes on, for people.
  const std::string& cpu_share() const { return cpu_share_; }
  /// Whether all ranks run on one machine.
  bool one_host() const { return one_host_; }

 private:
  RankGrid grid_;
  Topology topology_;
  std::string cpu_share_;
  bool one_host_ = true;
  std::unique_ptr<Device> device_;
  std::unique_ptr<Communicator> world_;
  std::unique_ptr<Communicator> context_;
  std::unique_ptr<Stream> host_queue_;        ///< beside a GPU: what ranks agree on must not wait for its work
  std::unique_ptr<Communicator> host_world_;  ///< likewise
  ControlChannel control_;
};

}  // namespace skrull
