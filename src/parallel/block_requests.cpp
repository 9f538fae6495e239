#include "block_requests.h"

#include <cstdint>
#include <utility>

#include "skrull/core/narrow.h"

namespace skrull {
namespace {

constexpr int no_more_blocks = -1;

}  // namespace

BlockRequests::BlockRequests(Device& device, Communicator& communicator, Gather gather)
    : device_(device),
      communicator_(communicator),
      gather_(std::move(gather)),
      message_(device.allocate(DType::int64, 1, 1, "parameters")) {}

int BlockRequests::broadcast(int block) {
  Stream& compute = device_.compute_stream();
  Stream& communication = device_.communication_stream();
  const TensorView message = message_.view(DType::int64, 1, 1);
  std::int64_t value = block;
  if (communicator_.rank() == 0) device_.copy_to_device(compute, message, &value);
  communication.wait(compute.record());
  communicator_.broadcast(communication, message, 0);
  compute.wait(communication.record());
  device_.copy_to_host(compute, &value, message);
  compute.synchronize();
  return narrow<int>(value);
}

TensorView BlockRequests::request(int block) {
  return gather_(broadcast(block));
}

void BlockRequests::finish() {
  broadcast(no_more_blocks);
}

void BlockRequests::serve() {
  for (int block = broadcast(0); block != no_more_blocks; block = broadcast(0)) gather_(block);
}

}  // namespace skrull
