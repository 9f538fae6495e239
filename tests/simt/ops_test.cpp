// Every kernel of the CUDA device against the definition of its operation, its threads in several orders.

#include <algorithm>
#include <string>
#include <vector>

#include "simt/simt.h"
#include "skrull/device/device.h"
#include "skrull/device/ops_check.h"
#include "support/catch.h"

using namespace skrull;

namespace {

/// Seed 0 runs the lowest threads first, others at random.
void check_under_seeds(std::vector<std::uint64_t> seeds, const OpsCheckOptions& options) {
  for (const std::uint64_t seed : seeds) {
    CAPTURE(seed);
    simt::options().seed = seed;
    const std::unique_ptr<Device> device = make_cuda_device(0);
    const std::vector<OpCheck> checks = check_ops(*device, options);
    CHECK_FALSE(checks.empty());
    for (const OpCheck& check : checks) {
      if (!check.passed()) FAIL_CHECK(to_string(check));
    }
  }
  simt::options().seed = 0;
}

}  // namespace

TEST_CASE("kernels agree with the definitions of their operations, in any order of threads") {
  OpsCheckOptions options;
  options.small_shapes_only = true;
  for (const std::string_view name : checked_operations()) {
    // Products are cuBLASLt's; attention has a test of its own.
    if (name == "gemm" || name.substr(0, 9) == "attention") continue;
    options.operations.emplace_back(name);
  }
  check_under_seeds({0, 1, 2, 3, 4}, options);
}

TEST_CASE("kernels agree with the definitions on rows that many threads share") {
  OpsCheckOptions options;
  options.operations = {"rms_norm_forward", "rms_norm_backward", "bias_backward", "embedding_backward",
                        "cross_entropy",    "sum_of_squares",    "rope",          "scale"};
  check_under_seeds({5}, options);
}
