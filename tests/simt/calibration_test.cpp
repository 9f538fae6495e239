#include "kernel/calibration.h"

#include "seeds.h"
#include "support/catch.h"

TEST_CASE("the host layer's instructions do what their definitions say") {
  cudaStream_t stream = nullptr;
  REQUIRE(cudaStreamCreate(&stream) == cudaSuccess);
  skrull::test::under_each_seed([&] { CHECK(skrull::check_instructions(stream) == std::vector<std::string>{}); });
  REQUIRE(cudaStreamDestroy(stream) == cudaSuccess);
}
