#include "skrull/schedule/robustness.h"

#include "schedule_fixture.h"
#include "support/catch.h"

using namespace skrull;

namespace {

const std::vector<std::vector<std::int64_t>> batches = {{30000, 200, 900, 4000, 50, 7000, 1200, 640},
                                                        {128, 256, 512, 60000, 2048, 4096, 8192, 100}};
const Topology topology{2, 4, 4};

}  // namespace

TEST_CASE("a profile with an error differs in the parts that err") {
  const HardwareProfile right = test::made_up_cluster();
  const HardwareProfile wrong =
      with_error(right, {.name = "all", .attention_rate = 0.5, .network_rate = 0.25, .fixed_costs = 3.0});
  CHECK(wrong.attention_peak_flops(64) == Approx(0.5 * right.attention_peak_flops(64)));
  CHECK(wrong.attention_peak_flops(100) == Approx(0.5 * right.attention_peak_flops(100)));
  CHECK(wrong.inter_node.bytes_per_s == right.inter_node.bytes_per_s / 4);
  CHECK(wrong.intra_node.latency_s == right.intra_node.latency_s * 4);
  CHECK(wrong.overhead.ring_step_backward_s == 3.0 * right.overhead.ring_step_backward_s);
  CHECK(wrong.linear_peak_flops(896) == right.linear_peak_flops(896));
}

TEST_CASE("no error, no loss; a policy that ignores costs loses nothing") {
  const CostModel cost = test::half_billion_cost();
  for (const ProfileErrorLoss& loss :
       losses_by_profile_error("skrull", {{.name = "none"}}, batches, topology, 26000, cost)) {
    CHECK(loss.mean_loss == 0.0);
    CHECK(loss.worst_loss == 0.0);
  }
  const auto of_packed = losses_by_profile_error("packed", usual_profile_errors(), batches, topology, 26000, cost);
  REQUIRE(of_packed.size() == 4);
  for (const ProfileErrorLoss& loss : of_packed) CHECK(loss.worst_loss == 0.0);
}

TEST_CASE("losses are means over the batches of plans judged by the right profile") {
  const CostModel cost = test::half_billion_cost();
  const ProfileError error{.name = "network", .network_rate = 0.01};
  const CostModel wrong(cost.model(), with_error(cost.profile(), error));
  double mean = 0.0;
  for (const auto& lengths : batches) {
    const ScheduleRequest request{lengths, topology, 26000};
    mean += 0.5 * (schedule_seconds(make_plan("skrull", request, wrong), cost) /
                       schedule_seconds(make_plan("skrull", request, cost), cost) -
                   1.0);
  }
  const auto losses = losses_by_profile_error("skrull", {error}, batches, topology, 26000, cost);
  CHECK(losses.front().mean_loss == Approx(mean));
  CHECK(losses.front().worst_loss >= losses.front().mean_loss);
}
