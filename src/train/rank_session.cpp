#include "skrull/train/rank_session.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "skrull/comm/device_communicator.h"
#include "skrull/comm/emulated_network.h"
#include "skrull/core/error.h"
#include "skrull/core/process.h"
#include "skrull/train/local_device.h"
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

/// All ranks compute on GPUs; or none does, with device: auto.
void agree_on_device(const TrainConfig& config, ControlChannel& control) {
  if (config.device == DeviceChoice::cpu || control.size() == 1) return;
  const std::vector<std::string> problems = control.gather(cuda_problem());
  const std::vector<std::string> hosts = control.gather(host_name());
  const auto without = control.size() - std::count(problems.begin(), problems.end(), "");
  if (without == 0 || (without == control.size() && config.device == DeviceChoice::automatic)) return;
  control.run_together([&] {
    const auto first = std::find_if(problems.begin(), problems.end(), [](const auto& text) { return !text.empty(); });
    const auto rank = first - problems.begin();
    throw_invalid_input(
        "device={}: no GPU to compute on for {} of {} ranks. Rank {} on {}: {}. Or use device=cpu, or start where "
        "every rank has a GPU",
        name_of(config.device), without, control.size(), rank, hosts[static_cast<std::size_t>(rank)], *first);
  });
}

/// A device that can't be had fails on all ranks together.
std::unique_ptr<Device> make_device(const TrainConfig& config, const MpiSession& session, int threads) {
  const auto world = session.world(limits_of(config));
  ControlChannel control(*world);
  agree_on_device(config, control);
  return control.run_together([&] {
    const bool emulated = config.emulated_network.enabled();
    if (uses_cuda(config)) {
      if (emulated) throw_invalid_input("emulated_network: only the CPU's ranks have one; remove it, or device=cpu");
      return make_cuda_device(session.local_rank(), {config.attention_engine, config.deterministic_attention});
    }
    if (config.attention_engine != AttentionEngineChoice::automatic) {
      throw_invalid_input("attention_engine={}: only GPUs have engines to choose from; use auto, or device=cuda",
                          name_of(config.attention_engine));
    }
    if (emulated && config.emulated_network.clock == EmulatedClock::processor) {
      return make_cpu_device(1, TimeSource::processor);
    }
    return make_cpu_device(threads);
  });
}

std::unique_ptr<Communicator> make_world(const TrainConfig& config, const MpiSession& session, Device& device) {
  auto world = make_device_communicator(device, session, limits_of(config));
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
  return uses_cuda(config.device);
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
      world_(make_world(config, session, *device_)),
      context_(world_->split(grid_.data_rank, grid_.context_rank)),
      host_queue_(device_->kind() == DeviceKind::cpu ? nullptr : make_host_queue()),
      host_world_(host_queue_ ? session.world(limits_of(config)) : nullptr),
      control_(host_world_ ? *host_world_ : *world_, host_queue_ ? *host_queue_ : device_->communication_stream()) {}

}  // namespace skrull
