// The stand-in for NCCL on 1 to 3 ranks: values of every operation, in one stream and beside another.

#include <mpi.h>
#include <nccl.h>

#include <cstdint>
#include <cstring>
#include <vector>

#include "seeds.h"
#include "support/catch.h"
#include "support/mpi.h"

namespace skrull {
namespace {

int rank() {
  return test::mpi_session().rank();
}
int size() {
  return test::mpi_session().size();
}

/// A communicator of all ranks, a stream, and device memory of so many floats that starts with given values.
class Scene {
 public:
  explicit Scene(const std::vector<float>& values) : count(values.size()) {
    ncclUniqueId id{};
    if (rank() == 0) REQUIRE(ncclGetUniqueId(&id) == ncclSuccess);
    MPI_Bcast(&id, sizeof(id), MPI_BYTE, 0, MPI_COMM_WORLD);
    REQUIRE(ncclCommInitRank(&communicator, size(), id, rank()) == ncclSuccess);
    REQUIRE(cudaStreamCreate(&stream) == cudaSuccess);
    REQUIRE(cudaMalloc(&data, count * sizeof(float)) == cudaSuccess);
    REQUIRE(cudaMemcpyAsync(data, values.data(), count * sizeof(float), cudaMemcpyHostToDevice, stream) == cudaSuccess);
  }
  ~Scene() {
    cudaStreamSynchronize(stream);
    cudaFree(data);
    ncclCommDestroy(communicator);
    cudaStreamDestroy(stream);
  }
  Scene(const Scene&) = delete;
  Scene& operator=(const Scene&) = delete;

  std::vector<float> values() const {
    std::vector<float> result(count);
    REQUIRE(cudaMemcpyAsync(result.data(), data, count * sizeof(float), cudaMemcpyDeviceToHost, stream) == cudaSuccess);
    return result;
  }

  std::size_t count;
  ncclComm_t communicator = nullptr;
  cudaStream_t stream = nullptr;
  float* data = nullptr;
};

float of_rank(int who, std::size_t i) {
  return static_cast<float>(100 * who) + static_cast<float>(i);
}

std::vector<float> own_values(std::size_t count) {
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i) values[i] = of_rank(rank(), i);
  return values;
}

float sum_over_ranks(std::size_t i) {
  float sum = 0;
  for (int who = 0; who < size(); ++who) sum += of_rank(who, i);
  return sum;
}

}  // namespace

TEST_CASE("all-reduce in place and broadcast") {
  test::under_each_seed(
      [] {
        Scene scene(own_values(7));
        REQUIRE(ncclAllReduce(scene.data, scene.data, 5, ncclFloat32, ncclSum, scene.communicator, scene.stream) ==
                ncclSuccess);
        REQUIRE(ncclBroadcast(scene.data + 5, scene.data + 5, 2, ncclFloat32, size() - 1, scene.communicator,
                              scene.stream) == ncclSuccess);
        const std::vector<float> values = scene.values();
        for (std::size_t i = 0; i < 5; ++i) CHECK(values[i] == sum_over_ranks(i));
        for (std::size_t i = 5; i < 7; ++i) CHECK(values[i] == of_rank(size() - 1, i));
      },
      5);
}

TEST_CASE("reduce-scatter and all-gather of equal parts, in place") {
  const auto ranks = static_cast<std::size_t>(size());
  const std::size_t own = 3 * static_cast<std::size_t>(rank());
  Scene scene(own_values(3 * ranks));
  REQUIRE(ncclReduceScatter(scene.data, scene.data + own, 3, ncclFloat32, ncclSum, scene.communicator, scene.stream) ==
          ncclSuccess);
  std::vector<float> values = scene.values();
  for (std::size_t i = 0; i < values.size(); ++i) {
    CHECK(values[i] == (i >= own && i < own + 3 ? sum_over_ranks(i) : of_rank(rank(), i)));
  }
  REQUIRE(ncclAllGather(scene.data + own, scene.data, 3, ncclFloat32, scene.communicator, scene.stream) == ncclSuccess);
  values = scene.values();
  for (std::size_t i = 0; i < values.size(); ++i) CHECK(values[i] == sum_over_ranks(i));
}

TEST_CASE("a group of sends, receives and reductions to one rank") {
  Scene scene(own_values(9));
  const int next = (rank() + 1) % size();
  const int previous = (rank() + size() - 1) % size();
  REQUIRE(ncclGroupStart() == ncclSuccess);
  REQUIRE(ncclSend(scene.data, 2, ncclFloat32, next, scene.communicator, scene.stream) == ncclSuccess);
  REQUIRE(ncclSend(scene.data + 2, 1, ncclFloat32, next, scene.communicator, scene.stream) == ncclSuccess);
  REQUIRE(ncclRecv(scene.data + 3, 2, ncclFloat32, previous, scene.communicator, scene.stream) == ncclSuccess);
  REQUIRE(ncclRecv(scene.data + 5, 1, ncclFloat32, previous, scene.communicator, scene.stream) == ncclSuccess);
  float* const result = rank() == 0 ? scene.data + 6 : nullptr;
  REQUIRE(ncclReduce(scene.data + 6, result, 3, ncclFloat32, ncclMax, 0, scene.communicator, scene.stream) ==
          ncclSuccess);
  REQUIRE(ncclGroupEnd() == ncclSuccess);
  const std::vector<float> values = scene.values();
  for (std::size_t i = 0; i < 3; ++i) CHECK(values[3 + i] == of_rank(previous, i));
  for (std::size_t i = 6; i < 9; ++i) CHECK(values[i] == of_rank(rank() == 0 ? size() - 1 : rank(), i));
}

TEST_CASE("memory that is not the device's, or too short, is refused") {
  Scene scene(own_values(4));
  float host = 0;
  CHECK(ncclAllReduce(&host, &host, 1, ncclFloat32, ncclSum, scene.communicator, scene.stream) == ncclInvalidArgument);
  CHECK(ncclAllReduce(scene.data, scene.data, 5, ncclFloat32, ncclSum, scene.communicator, scene.stream) ==
        ncclInvalidArgument);
  CHECK(ncclSend(scene.data, 1, ncclFloat32, size(), scene.communicator, scene.stream) == ncclInvalidArgument);
  CHECK(ncclGroupEnd() == ncclInvalidUsage);
}

}  // namespace skrull
