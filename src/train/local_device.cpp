#include "skrull/train/local_device.h"

namespace skrull {

std::unique_ptr<Device> make_local_device(DeviceChoice choice, int threads, int local_rank) {
  const bool on_gpu = choice == DeviceChoice::cuda || (choice == DeviceChoice::automatic && cuda_available());
  return on_gpu ? make_cuda_device(local_rank) : make_cpu_device(threads);
}

}  // namespace skrull
