// cuDNN has plans for the graphs that the CUDA device asks it for, and none that the device's rules count on it not to
// have: a check of support and of memory, not of results. Which plans it makes for a GPU that isn't there follows from
// the GPU's properties; their kernels are compiled, and taken by a driver that stands in (driver_stand_in.cpp).

#include <cudnn_frontend.h>
#include <spdlog/fmt/fmt.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "ops/cudnn_graph.h"
#include "support/catch.h"

using namespace skrull;
using attention::CudnnBackwardKey;
using attention::CudnnForwardKey;
using Catch::Matchers::ContainsSubstring;
namespace fe = cudnn_frontend;

namespace {

/// From NVIDIA's tables of compute capabilities and data sheets, written down by hand.
struct Gpu {
  int compute_capability;
  int multiprocessors;
  int shared_bytes_of_block;
  std::int64_t memory_bytes;
  int l2_bytes;
};
constexpr Gpu ampere = {80, 108, 163 << 10, 80'000'000'000, 40 << 20};
constexpr Gpu hopper = {90, 132, 227 << 10, 80'000'000'000, 50 << 20};
constexpr Gpu blackwell = {100, 148, 227 << 10, 180'000'000'000, 126 << 20};

std::shared_ptr<fe::DeviceProperties> properties_of(const Gpu& gpu) {
  const std::string json = fmt::format(
      R"({{"deviceVer":{},"driverVer":13000,"cudaDeviceId":0,"totalGlobalMem":{},"maxGridSize":[2147483647,65535,65535],)"
      R"("maxBlockSize":[1024,1024,64],"regsPerBlock":65536,"multiProcessorCount":{},"warpSize":32,)"
      R"("maxSharedMemoryPerBlock":49152,"maxSharedMemoryPerBlockOptin":{},"reservedSharedMemoryPerBlock":1024,)"
      R"("maxRegistersPerSM":65536,"maxCtasPerSM":32,"maxThreadsPerBlock":1024,"maxThreadsPerSM":2048,"pciDeviceId":0,)"
      R"("isTccDriver":0,"supportCoopLaunch":1,"smClockRateKHz":1800000,"memClockRateKHz":2600000,"l2CacheSize":{},)"
      R"("deviceName":"GPU by hand"}})",
      gpu.compute_capability * 10, gpu.memory_bytes, gpu.multiprocessors, gpu.shared_bytes_of_block, gpu.l2_bytes);
  auto properties = std::make_shared<fe::DeviceProperties>();
  fe::error_t error = properties->deserialize(std::vector<std::uint8_t>(json.begin(), json.end()));
  INFO(error.get_message());
  REQUIRE(error.is_good());
  return properties;
}

struct Heads {
  std::int64_t heads, kv_heads, head_dim;
};
constexpr Heads of_7b = {28, 4, 128};
constexpr Heads of_half_b = {14, 2, 64};
constexpr Heads of_1_5b = {12, 2, 128};

/// Of queries, keys and values in one fused buffer.
CudnnForwardKey forward_of(const Gpu& gpu, std::int64_t sequences, std::int64_t length, const Heads& h) {
  const std::int64_t fused = (h.heads + 2 * h.kv_heads) * h.head_dim;
  return {gpu.compute_capability, sequences, length, h.heads, h.kv_heads, h.head_dim, fused, fused, fused,
          h.heads * h.head_dim,   h.heads,   0.125F};
}

/// Of sequences that are as long as they can be.
CudnnBackwardKey backward_of(const Gpu& gpu, std::int64_t sequences, std::int64_t length, const Heads& h,
                             bool deterministic) {
  return {forward_of(gpu, sequences, length, h), h.heads * h.head_dim, sequences * length, deterministic};
}

struct Plan {
  std::string problem;  ///< why there is none; empty when there is
  std::int64_t workspace_bytes = 0;
};

Plan plan_of(const Gpu& gpu, const std::shared_ptr<fe::graph::Graph>& graph) {
  graph->set_device_properties(properties_of(gpu));
  fe::error_t error = graph->validate();
  if (error.is_good()) error = graph->build_operation_graph();
  if (error.is_good()) error = graph->create_execution_plans({fe::HeurMode_t::A});
  if (error.is_good()) error = graph->check_support();
  if (error.is_good()) error = graph->build_plans();
  if (error.is_bad()) return {error.get_message() + "!"};
  return {"", graph->get_workspace_size()};
}
Plan plan_of(const Gpu& gpu, const CudnnForwardKey& key) {
  return plan_of(gpu, attention::cudnn_forward_graph(key));
}
Plan plan_of(const Gpu& gpu, const CudnnBackwardKey& key) {
  return plan_of(gpu, attention::cudnn_backward_graph(key));
}

bool no_cudnn() {
  const std::string& problem = attention::cudnn_library_problem();
  if (!problem.empty()) WARN("skipped: " << problem);
  return !problem.empty();
}

/// Tables of one number per sequence and head are all that a forward works in.
void check_forward(const Gpu& gpu, std::int64_t sequences, std::int64_t length, const Heads& heads) {
  CAPTURE(gpu.compute_capability, sequences, length, heads.head_dim);
  const Plan plan = plan_of(gpu, forward_of(gpu, sequences, length, heads));
  CHECK(plan.problem.empty());
  CHECK(plan.workspace_bytes < 1 << 20);
}

/// A backward whose memory is linear in the rows works in up to three fp32 gradients as large as that of the queries,
/// and one number per row and head.
void check_linear_backward(const Gpu& gpu, std::int64_t sequences, std::int64_t length, const Heads& h,
                           bool deterministic) {
  CAPTURE(gpu.compute_capability, sequences, length, h.head_dim, deterministic);
  const CudnnBackwardKey key = backward_of(gpu, sequences, length, h, deterministic);
  const Plan plan = plan_of(gpu, key);
  CHECK(plan.problem.empty());
  CHECK(plan.workspace_bytes > 0);
  CHECK(plan.workspace_bytes <= key.rows * h.heads * (3 * h.head_dim + 1) * 4 + (1 << 20));
}

}  // namespace

TEST_CASE("cuDNN has forward plans for packed sequences of the models' shapes") {
  if (no_cudnn()) return;
  for (const Gpu& gpu : {ampere, hopper, blackwell}) {
    check_forward(gpu, 8, 4096, of_7b);
    check_forward(gpu, 256, 512, of_half_b);
    check_forward(gpu, 1, 131072, of_1_5b);
    check_forward(gpu, 4, 1024, {4, 4, 80});
  }
}

TEST_CASE("cuDNN has none for heads that are no multiple of 8") {
  if (no_cudnn()) return;
  CHECK_FALSE(plan_of(hopper, forward_of(hopper, 8, 4096, {28, 4, 100})).problem.empty());
}

TEST_CASE("cuDNN's backward without an order of its sums is linear in the tokens on Hopper and Blackwell") {
  if (no_cudnn()) return;
  for (const Gpu& gpu : {hopper, blackwell}) {
    check_linear_backward(gpu, 8, 4096, of_7b, false);
    check_linear_backward(gpu, 256, 512, of_half_b, false);
    check_linear_backward(gpu, 1, 32768, of_1_5b, false);
    check_linear_backward(gpu, 4, 1024, {4, 4, 80}, false);
  }
}

TEST_CASE("cuDNN's deterministic backward is linear in the tokens on Blackwell") {
  if (no_cudnn()) return;
  check_linear_backward(blackwell, 8, 4096, of_7b, true);
  check_linear_backward(blackwell, 256, 512, of_half_b, true);
  check_linear_backward(blackwell, 1, 32768, of_1_5b, true);
}

TEST_CASE("cuDNN's deterministic backward needs quadratic memory on Hopper") {
  if (no_cudnn()) return;
  for (const std::int64_t length : {2048, 4096}) {
    const Plan plan = plan_of(hopper, backward_of(hopper, 8, length, of_7b, true));
    REQUIRE(plan.problem.empty());
    CHECK(plan.workspace_bytes >= 8 * of_7b.heads * length * length * 2);
  }
}

TEST_CASE("cuDNN has no backward of packed sequences below Hopper") {
  if (no_cudnn()) return;
  CHECK_THAT(plan_of(ampere, backward_of(ampere, 8, 4096, of_7b, false)).problem, ContainsSubstring("LSE"));
  CHECK_THAT(plan_of(ampere, backward_of(ampere, 8, 4096, of_7b, true)).problem, ContainsSubstring("Deterministic"));
}
