#include "skrull/comm/device_communicator.h"

namespace skrull {

std::unique_ptr<Communicator> make_device_communicator(Device& device, const MpiSession& session,
                                                       const MessageLimits& limits) {
  auto host = session.world(limits);
  if (device.kind() == DeviceKind::cpu) return host;
  return make_cuda_communicator(device, std::move(host), limits.timeout_seconds);
}

}  // namespace skrull
