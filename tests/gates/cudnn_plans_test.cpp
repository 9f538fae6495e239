// cuDNN has kernels for the graphs that the CUDA device asks it for: a check of support, not of results. Which plans it
// selects for a GPU that isn't there follows from the GPU's properties.

#include <cudnn_frontend.h>
#include <spdlog/fmt/fmt.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "ops/cudnn_graph.h"
#include "support/catch.h"

using namespace skrull;
using attention::CudnnForwardKey;
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

/// Of queries, keys and values in one fused buffer.
CudnnForwardKey key_of(const Gpu& gpu, std::int64_t sequences, std::int64_t length, std::int64_t heads,
                       std::int64_t kv_heads, std::int64_t head_dim) {
  const std::int64_t fused = (heads + 2 * kv_heads) * head_dim;
  return {gpu.compute_capability, sequences, length, heads, kv_heads, head_dim, fused, fused, fused,
          heads * head_dim,       heads,     0.125F};
}

/// Why cuDNN has no plan; empty when it has.
std::string obstacle(const Gpu& gpu, const CudnnForwardKey& key) {
  const auto graph = attention::cudnn_forward_graph(key);
  graph->set_device_properties(properties_of(gpu));
  fe::error_t error = graph->validate();
  if (error.is_good()) error = graph->build_operation_graph();
  if (error.is_good()) error = graph->create_execution_plans({fe::HeurMode_t::A});
  if (error.is_good()) error = graph->check_support();
  if (error.is_bad()) return error.get_message() + "!";
  return graph->get_execution_plan_count() > 0 ? "" : "no plan";
}

bool no_cudnn() {
  const std::string& problem = attention::cudnn_library_problem();
  if (!problem.empty()) WARN("skipped: " << problem);
  return !problem.empty();
}

}  // namespace

TEST_CASE("cuDNN has plans for packed sequences of the models' shapes") {
  if (no_cudnn()) return;
  for (const Gpu& gpu : {hopper, blackwell}) {
    CAPTURE(gpu.compute_capability);
    CHECK(obstacle(gpu, key_of(gpu, 8, 4096, 28, 4, 128)).empty());    // 7B
    CHECK(obstacle(gpu, key_of(gpu, 256, 512, 14, 2, 64)).empty());    // 0.5B
    CHECK(obstacle(gpu, key_of(gpu, 1, 131072, 12, 2, 128)).empty());  // 1.5B
    CHECK(obstacle(gpu, key_of(gpu, 4, 1024, 4, 4, 80)).empty());
  }
}

TEST_CASE("cuDNN has none for heads that are no multiple of 8") {
  if (no_cudnn()) return;
  CHECK_FALSE(obstacle(hopper, key_of(hopper, 8, 4096, 28, 4, 100)).empty());
}
