// Sharded training state and ring attention on one communication stream: random micro-batches, in which every replica
// and rank has other rings, or nothing to do. Whatever order could make ranks wait in a circle would hang here, and
// ctest's time-out ends it.
#include <cstring>

#include "random_training.h"
#include "support/catch.h"
#include "support/mpi.h"

using namespace skrull;

namespace {

test::Trained train(int stage, int context_parallel, Recompute recompute) {
  const auto device = make_cpu_device(1);
  const auto world = test::mpi_session().world();
  return test::train_on_random_batches(
      *device, *world,
      {.context_parallel = context_parallel, .recompute = recompute, .parameters = {.zero_stage = stage}});
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

}  // namespace

TEST_CASE("rings and sharded state share the communication stream: no rank hangs, all stages agree bit by bit",
          "[zero]") {
  const int ranks = test::mpi_session().size();
  for (const int context_parallel : {1, 2, ranks}) {
    if (ranks % context_parallel != 0) continue;
    const test::Trained expected = train(0, context_parallel, Recompute::selective);
    CHECK(expected.norms.front() > 0);
    for (const int stage : {1, 2, 3}) {
      for (const Recompute recompute : {Recompute::none, Recompute::selective, Recompute::full}) {
        if (stage == 1 && recompute != Recompute::selective) continue;
        INFO("stage " << stage << ", context parallel " << context_parallel);
        const test::Trained actual = train(stage, context_parallel, recompute);
        CHECK(actual.norms == expected.norms);
        CHECK(same_bits(actual.state, expected.state));
      }
    }
  }
}
