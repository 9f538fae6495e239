#include "skrull/train/local_device.h"

namespace skrull {

bool uses_cuda(DeviceChoice choice) {
  return choice == DeviceChoice::cuda || (choice == DeviceChoice::automatic && cuda_available());
}

std::unique_ptr<Device> make_local_device(DeviceChoice choice, int threads, int local_rank,
                                          const AttentionChoice& attention) {
  return uses_cuda(choice) ? make_cuda_device(local_rank, attention) : make_cpu_device(threads);
}

}  // namespace skrull
