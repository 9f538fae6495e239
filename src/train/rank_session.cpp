#include "skrull/train/rank_session.h"

#include <utility>

#include "skrull/comm/emulated_network.h"
#include "skrull/core/error.h"
#include "skrull/train/scheduling.h"

namespace skrull {
namespace {

CpuShare share_of_cores(const TrainConfig& config, const MpiSession& session) {
  if (config.cpu_binding == CpuBinding::keep) return {0, "cores as the launcher bound them"};
  return spread_over_cores(session.local_rank(), session.local_size());
}

MessageLimits limits_of(const TrainConfig& config) {
  MessageLimits limits;
  limits.timeout_seconds = static_cast<double>(config.timeout_seconds);
  return limits;
}

/// A device that can't be had fails on all ranks together.
std::unique_ptr<Device> make_device(const TrainConfig& config, const MpiSession& session, int threads) {
  const auto world = session.world(limits_of(config));
  return ControlChannel(*world).run_together([&] {
    const bool emulated = config.emulated_network.enabled();
    if (uses_cuda(config)) {
      if (emulated) throw_invalid_input("emulated_network: only the CPU's ranks have one; remove it, or device=cpu");
      return make_cuda_device(session.local_rank());
    }
    if (emulated && config.emulated_network.clock == EmulatedClock::processor) {
      return make_cpu_device(1, TimeSource::processor);
    }
    return make_cpu_device(threads);
  });
}

std::unique_ptr<Communicator> make_world(const TrainConfig& config, const MpiSession& session) {
  auto world = session.world(limits_of(config));
  if (!config.emulated_network.enabled()) return world;
  const LinkRate link{config.emulated_network.bytes_per_s, config.emulated_network.latency_s};
  return make_emulated_communicator(std::move(world), {link, link, 1});
}

/// A config that this version can't train by fails on all ranks together.
RankGrid make_grid(const TrainConfig& config, const MpiSession& session) {
  const auto world = session.world(limits_of(config));
  return ControlChannel(*world).run_together([&] {
    check_trainable_schedule(config);
    return make_rank_grid(session.size(), session.rank(), static_cast<int>(config.context_parallel_size));
  });
}

}  // namespace

bool uses_cuda(const TrainConfig& config) {
  return config.device == DeviceChoice::cuda || (config.device == DeviceChoice::automatic && cuda_available());
}

RankSession::RankSession(const TrainConfig& config, const MpiSession& session)
    : grid_(make_grid(config, session)),
      topology_{grid_.data_parallel, grid_.context_parallel,
                static_cast<int>(config.ranks_per_node.value_or(session.local_size()))},
      one_host_(session.local_size() == session.size()),
      device_([&] {
        CpuShare share = share_of_cores(config, session);
        cpu_share_ = std::move(share.description);
        return make_device(config, session, share.threads);
      }()),
      world_(make_world(config, session)),
      context_(world_->split(grid_.data_rank, grid_.context_rank)),
      control_(*world_, device_->communication_stream()) {}

}  // namespace skrull
