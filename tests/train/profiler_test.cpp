// Measured hardware profiles: their form, and that what they predict is of the size of what a step takes. Times are
// left to `skrull bench step --profile`; tests share the machine with others.

#include "skrull/train/profiler.h"

#include "skrull/schedule/cost_model.h"
#include "skrull/train/step_benchmark.h"
#include "support/catch.h"
#include "support/support.h"

using namespace skrull;

namespace {

Qwen2Config small_model() {
  Qwen2Config config;
  config.vocab_size = 1000;
  config.hidden_size = 128;
  config.intermediate_size = 384;
  config.num_layers = 6;
  config.num_heads = 4;
  config.num_kv_heads = 2;
  config.head_dim = 32;
  config.max_position_embeddings = 4096;
  config.tie_word_embeddings = true;
  return config;
}

ProfilerResult measure() {
  const std::unique_ptr<Device> device = make_cpu_device(1);
  ProfilerResult result = measure_hardware_profile(small_model(), {DType::float32, 1.0}, *device);
  result.profile.name = "measured here";
  return result;
}

const ProfilerResult& measured() {
  static const ProfilerResult result = measure();
  return result;
}

/// Ascending positions from 1, shares that rise to 1.
void check_efficiency(const LogLogCurve& curve, std::size_t least_points) {
  const auto& points = curve.points();
  REQUIRE(points.size() >= least_points);
  CHECK(points.front().at == 1.0);
  CHECK(points.front().value > 0.0);
  CHECK(points.back().value == 1.0);
  for (std::size_t i = 1; i < points.size(); ++i) {
    CHECK(points[i - 1].at < points[i].at);
    CHECK(points[i - 1].value <= points[i].value);
  }
}

}  // namespace

TEST_CASE("a measured profile is a whole one, every number with its source") {
  const HardwareProfile& profile = measured().profile;
  CHECK(measured().rounds >= 3);
  CHECK(measured().tokens.front() == 1);
  CHECK(measured().tokens.back() >= 256);
  check_efficiency(profile.linear_efficiency, measured().tokens.size());
  check_efficiency(profile.attention_efficiency, 5);
  CHECK(profile.linear_peak_flops.points().front().at == 128.0);
  CHECK(profile.attention_peak_flops.points().front().at == 32.0);
  CHECK(profile.linear_peak_flops(128) > 1e8);
  CHECK(profile.attention_peak_flops(32) > 1e8);
  // One token is far from the peak on any machine.
  CHECK(profile.linear_efficiency(1) < 0.8);
  CHECK(profile.overhead.layer_forward_s > 0.0);
  CHECK(profile.overhead.layer_backward_s >= 0.0);
  CHECK(profile.overhead.local_attention_forward_s > 0.0);
  CHECK(profile.overhead.local_attention_backward_s > 0.0);
  CHECK(profile.overhead.ring_step_forward_s > profile.overhead.local_attention_forward_s);
  CHECK(profile.overhead.ring_step_backward_s > profile.overhead.local_attention_backward_s);
  CHECK(profile.intra_node.bytes_per_s > 1e7);
  REQUIRE(profile.gradient_sync.has_value());
  CHECK(profile.gradient_sync->bus_bytes_per_s > 0.0);
  std::size_t assumed = 0;
  for (const auto& [number, source] : profile.sources) assumed += source.starts_with("assumed") ? 1 : 0;
  CHECK(profile.sources.size() == 13);
  CHECK(assumed == 2);
  CHECK(profile.sources.at("links.intra").starts_with("assumed: "));
  CHECK(profile.sources.at("links.inter").starts_with("assumed: "));

  // More tokens never take less time, up to the four digits that are kept.
  const CostModel cost(small_model().shape(), profile);
  for (std::int64_t tokens = 1; tokens < 20000; tokens += 1 + tokens / 5) {
    CHECK(cost.linear_forward(tokens) <= cost.linear_forward(tokens + 1 + tokens / 5) * 1.001);
    CHECK(cost.attention_forward(tokens, 1, 0) <= cost.attention_forward(tokens + 1 + tokens / 5, 1, 0) * 1.001);
  }
}

TEST_CASE("a profile that was written is read as it was") {
  const test::TemporaryFolder folder;
  const HardwareProfile& profile = measured().profile;
  write_hardware_profile(folder / "p.json", profile);
  const HardwareProfile read = find_hardware_profile((folder / "p.json").string());
  CHECK(hardware_profile_to_json(read) == hardware_profile_to_json(profile));
  CHECK(read.name == "measured here");
  CHECK(read.linear_efficiency(300) == profile.linear_efficiency(300));
  CHECK(read.overhead.ring_step_backward_s == profile.overhead.ring_step_backward_s);
  // What ships survives as well: points, links, optional parts.
  for (const std::string& name : shipped_hardware_profiles()) {
    const HardwareProfile shipped = find_hardware_profile(name);
    const HardwareProfile again = parse_hardware_profile(hardware_profile_to_json(shipped), name);
    CHECK(again.sources == shipped.sources);
    CHECK(again.device_memory_bytes == shipped.device_memory_bytes);
    CHECK(again.inter_node.seconds(1e6) == shipped.inter_node.seconds(1e6));
    CHECK(again.linear_efficiency(100) == shipped.linear_efficiency(100));
    CHECK(again.gradient_sync.has_value() == shipped.gradient_sync.has_value());
  }
}

TEST_CASE("a step is predicted as the cost model says") {
  const HardwareProfile profile = find_hardware_profile("cpu");
  const ModelShape model = small_model().shape();
  const CostModel cost(model, profile);
  const double expected = cost.rank_seconds(cost.linear_seconds(128), true,
                                            cost.attention_forward(100, 1, 0) + cost.attention_forward(28, 1, 0), {}) +
                          cost.gradient_sync_seconds();
  CHECK(predict_step(model, {100, 28}, Recompute::selective, profile) == Approx(expected).epsilon(1e-12));
  CHECK(predict_step(model, {100, 28}, Recompute::full, profile) > expected);
}

TEST_CASE("a step of mixed lengths takes about what the measured profile predicts") {
  StepBenchmarkOptions options;
  options.tokens = 700;
  options.threads = 1;
  options.steps = 5;
  // On a machine that others use, its speed may change between the two: then both are measured again.
  std::string tries;
  bool near = false;
  for (int i = 0; i < 5 && !near; ++i) {
    const HardwareProfile profile = measure().profile;
    const StepBenchmark step = bench_step(small_model(), options);
    const double predicted = predict_step(small_model().shape(), step.lengths, options.recompute, profile);
    near = predicted > step.step_seconds / 2 && predicted < step.step_seconds * 2;
    tries += fmt::format("predicted {:.4f} s, measured {:.4f} s; ", predicted, step.step_seconds);
  }
  INFO(tries);
  CHECK(near);
}
