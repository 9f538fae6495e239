// Every kernel of the CUDA device against the definition of its operation, its threads in several orders.

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "device/cuda_stream.h"
#include "device/host_device.h"
#include "ops/cuda_gemm.h"
#include "ops/cuda_ops.h"
#include "simt/kernel_coverage.h"
#include "simt/sanitizers.h"
#include "simt/seeds.h"
#include "simt/simt.h"
#include "skrull/device/ops_check.h"
#include "support/catch.h"

using namespace skrull;

namespace {

/// A block of exactly what was asked for, filled with NaN, so that sanitizers see its end and sums its start.
class ExactScratch final : public CudaScratch {
 public:
  void* get(Stream& stream, std::int64_t bytes) override {
    stream.synchronize();  // who had it before is done
    void* block = nullptr;
    REQUIRE(posix_memalign(&block, 256, static_cast<std::size_t>(bytes)) == 0);
    std::memset(block, 0xFF, static_cast<std::size_t>(bytes));
    block_.reset(block);
    return block;
  }
  std::int64_t capacity() const override { return std::int64_t{64} << 20; }

 private:
  struct Free {
    void operator()(void* block) const { std::free(block); }
  };
  std::unique_ptr<void, Free> block_;
};

/// Kernels on host memory, of which every buffer is an allocation of its own.
void check_under_seed(std::uint64_t seed, const OpsCheckOptions& options) {
  CAPTURE(seed);
  simt::options().seed = seed;
  CudaStream stream(0, make_cuda_stream_context());
  ExactScratch scratch;
  CudaOps ops(scratch, std::make_unique<CudaGemm>(scratch));
  test::HostDevice device(ops, stream);
  const std::vector<OpCheck> checks = check_ops(device, options);
  CHECK_FALSE(checks.empty());
  for (const OpCheck& check : checks) {
    if (!check.passed()) FAIL_CHECK(to_string(check));
  }
  simt::options().seed = 0;
}

/// Large shapes take the thread sanitizer minutes, and show it no more than small ones do.
bool left_to_other_builds() {
  if (simt::thread_sanitizer) std::puts("skipped: large shapes under the thread sanitizer");
  return simt::thread_sanitizer;
}

}  // namespace

// Seed 0 runs the lowest threads first, others at random.
TEST_CASE("kernels agree with the definitions of their operations, in any order of threads") {
  OpsCheckOptions options;
  options.small_shapes_only = true;
  for (const std::string_view name : checked_operations()) {
    if (name.substr(0, 9) != "attention") options.operations.emplace_back(name);  // which has a test of its own
  }
  for (std::uint64_t seed = 0; seed < test::few_orders; ++seed) check_under_seed(seed, options);
}

TEST_CASE("kernels agree with the definitions on rows that many threads share") {
  if (left_to_other_builds()) return;
  OpsCheckOptions options;
  options.operations = {"rms_norm_forward", "rms_norm_backward", "bias_backward", "embedding_backward",
                        "cross_entropy",    "sum_of_squares",    "rope",          "scale"};
  check_under_seed(5, options);
}

// The last one: of what ran before. Attention's kernels have a test of their own, which asks the same.
TEST_CASE("the cases above launch every instance of every kernel but attention's") {
  if (left_to_other_builds()) return;
  std::vector<std::string> missing = test::kernels_not_launched();
  std::erase_if(missing, [](const std::string& name) { return name.find("attention::") != std::string::npos; });
  CHECK(missing == std::vector<std::string>{});
}
