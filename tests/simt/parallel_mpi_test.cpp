// Sharded training state and ring attention on the CUDA device's code against the CPU device. The model has layers
// enough that all buffers are used again while work on them is queued: a wait that is missing shows as other numbers.
#include <array>
#include <cmath>
#include <cstdint>
#include <vector>

#include "parallel/random_training.h"
#include "simt/simt.h"
#include "simt/stand_in/runtime.h"
#include "skrull/comm/device_communicator.h"
#include "support/catch.h"
#include "support/mpi.h"

using namespace skrull;

namespace {

test::Trained train(Device& device, const test::RandomTraining& training) {
  const auto world = make_device_communicator(device, test::mpi_session());
  return test::train_on_random_batches(device, *world, training);
}

/// |a - b| / |b| in the 2-norm.
template <class Values>
double relative_difference(const Values& a, const Values& b) {
  REQUIRE(a.size() == b.size());
  double difference = 0;
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    difference += std::pow(double{a[i]} - double{b[i]}, 2);
    sum += std::pow(double{b[i]}, 2);
  }
  return std::sqrt(difference / sum);
}

bool are_same_on_all_ranks(Device& cpu, const std::vector<double>& values) {
  const auto world = make_device_communicator(cpu, test::mpi_session());
  ControlChannel control(*world, cpu.communication_stream());
  std::int64_t smaller = 0;
  for (const double value : values) smaller += static_cast<std::int64_t>(control.max(value) != value);
  return control.sum(smaller) == 0;
}

/// Each ZeRO stage under an order of the streams of its own, with two ranks under two. Gradient norms have the same
/// bits in all of them and on all ranks, and so has what a rank owns under the same stage.
void check(test::RandomTraining training) {
  const std::uint64_t orders = test::mpi_session().size() == 2 ? 8 : 4;
  std::array<test::Trained, 4> first;  // of each stage
  for (std::uint64_t seed = 1; seed <= orders; ++seed) {
    simt::options().seed = seed;
    training.parameters.zero_stage = static_cast<int>(seed % 4);
    CAPTURE(seed, training.parameters.zero_stage);
    const auto cpu = make_cpu_device(1);
    const test::Trained expected = train(*cpu, training);
    const auto gpu = make_cuda_device(test::mpi_session().local_rank());
    const test::Trained actual = train(*gpu, training);
    // The model is small and the steps are large: from one to the next, differences of rounding grow tenfold.
    CHECK(relative_difference(actual.norms, expected.norms) < 1e-3);
    CHECK(relative_difference(actual.state, expected.state) < 1e-3);
    CHECK(are_same_on_all_ranks(*cpu, actual.norms));
    test::Trained& same_stage = first.at(seed % 4);
    if (same_stage.norms.empty()) same_stage = actual;
    CHECK(actual.norms == first[1].norms);
    CHECK(actual.state == same_stage.state);
  }
}

}  // namespace

TEST_CASE("the GPU's code trains a deep model as the CPU device does: replicas") {
  check({.layers = 5, .context_parallel = 1});
}

TEST_CASE("the GPU's code trains a deep model as the CPU device does: rings") {
  check({.layers = 5, .context_parallel = test::mpi_session().size()});
}

TEST_CASE("the GPU's code trains a deep model as the CPU device does: optimizer on the host") {
  check({.layers = 5, .parameters = {.optimizer_on_host = true}});
}

// Its gradients change places from one micro-batch to the next, where layers of a deep model find theirs taken.
TEST_CASE("the GPU's code trains a model of one layer as the CPU device does") {
  check({.layers = 1});
}

TEST_CASE("no micro-batch waits for the device, and no step but the first allocates", "[host calls]") {
  const bool optimizer_on_host = GENERATE(false, true);
  const int context_parallel = GENERATE(1, test::mpi_session().size());
  for (int stage = 0; stage < 4; ++stage) {
    CAPTURE(optimizer_on_host, context_parallel, stage);
    const auto gpu = make_cuda_device(test::mpi_session().local_rank());
    const simt::HostCalls& calls = simt::host_calls();
    std::int64_t waits = 0;
    std::int64_t allocations = 0;
    int steps = 0;
    const auto observe = [&](test::StepMoment moment) {
      switch (moment) {
        case test::StepMoment::begins:
          waits = calls.waits;
          break;
        case test::StepMoment::micro_batches_queued:
          CHECK(calls.waits.load() == waits);
          break;
        case test::StepMoment::update_queued:
          if (steps > 0) CHECK(calls.allocations.load() == allocations);
          allocations = calls.allocations;
          ++steps;
      }
    };
    train(*gpu, {.layers = 5,
                 .context_parallel = context_parallel,
                 .parameters = {.optimizer_on_host = optimizer_on_host, .zero_stage = stage},
                 .observer = observe});
    CHECK(steps == 3);
  }
}
