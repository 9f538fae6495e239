#include "reduction.h"

#include <cmath>
#include <limits>
#include <vector>

#include "skrull/core/error.h"
#include "support/catch.h"

using namespace skrull;

TEST_CASE("contributions are added in the order given", "[reduction]") {
  // 1e8 swallows a 1 that comes after it, not the 1s that come before.
  const std::vector<float> ones(5000, 4.0F);
  const std::vector<float> large(5000, 1e8F);
  std::vector<float> result(5000);
  const void* small_first[] = {ones.data(), ones.data(), large.data()};
  reduce_in_order(ReduceOp::sum, DType::float32, small_first, result.data(), 5000);
  CHECK(result.front() == 100000008.0F);
  CHECK(result.back() == 100000008.0F);
  const void* large_first[] = {large.data(), ones.data(), ones.data()};
  reduce_in_order(ReduceOp::sum, DType::float32, large_first, result.data(), 5000);
  CHECK(result.front() == 100000000.0F);
  CHECK(result.back() == 100000000.0F);
}

TEST_CASE("the target may be one of the contributions", "[reduction]") {
  std::vector<double> first(4099, 1.5);
  const std::vector<double> second(4099, 2.25);
  const void* sources[] = {second.data(), first.data()};
  reduce_in_order(ReduceOp::sum, DType::float64, sources, first.data(), 4099);
  CHECK(first == std::vector<double>(4099, 3.75));
}

TEST_CASE("a maximum keeps what is not a number", "[reduction]") {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float infinity = std::numeric_limits<float>::infinity();
  const std::vector<float> a = {1, nan, infinity, -3};
  const std::vector<float> b = {2, 5, nan, -infinity};
  std::vector<float> result(4);
  for (const bool swapped : {false, true}) {
    const void* sources[] = {swapped ? b.data() : a.data(), swapped ? a.data() : b.data()};
    reduce_in_order(ReduceOp::max, DType::float32, sources, result.data(), 4);
    CHECK(result[0] == 2);
    CHECK(std::isnan(result[1]));
    CHECK(std::isnan(result[2]));
    CHECK(result[3] == -3);
  }
  const std::int64_t big = std::int64_t{1} << 60;
  const std::vector<std::int64_t> c = {big, -big};
  const std::vector<std::int64_t> d = {big + 1, -big - 1};
  std::vector<std::int64_t> integers(2);
  const void* sources[] = {c.data(), d.data()};
  reduce_in_order(ReduceOp::max, DType::int64, sources, integers.data(), 2);
  CHECK(integers == std::vector<std::int64_t>{big + 1, -big});
}

TEST_CASE("other dtypes are refused", "[reduction]") {
  float value = 0;
  const void* sources[] = {&value};
  CHECK_THROWS_AS(reduce_in_order(ReduceOp::sum, DType::bfloat16, sources, &value, 1), RunFailure);
  CHECK_THROWS_AS(reduce_in_order(ReduceOp::max, DType::int32, sources, &value, 1), RunFailure);
}
