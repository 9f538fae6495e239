#include "skrull/core/rng.h"

#include <algorithm>
#include <numeric>

#include "support/catch.h"

using namespace skrull;

TEST_CASE("a stream depends on seed and name alone") {
  CHECK(random_key(1, "a") != random_key(2, "a"));
  CHECK(random_key(1, "a") != random_key(1, "b"));
  Rng first(7, "x");
  Rng second(7, "x");
  for (int i = 0; i < 100; ++i) CHECK(first.bits() == second.bits());
}

TEST_CASE("normal values have mean 0 and variance 1") {
  const auto key = random_key(42, "normal");
  double sum = 0;
  double squares = 0;
  constexpr int count = 100000;
  for (int i = 0; i < count; ++i) {
    const double value = random_normal(key, static_cast<std::uint64_t>(i));
    sum += value;
    squares += value * value;
  }
  CHECK(sum / count == Approx(0.0).margin(0.015));
  CHECK(squares / count == Approx(1.0).margin(0.02));
}

TEST_CASE("shuffle is a permutation and below() is unbiased") {
  std::vector<int> values(1000);
  std::iota(values.begin(), values.end(), 0);
  auto shuffled = values;
  Rng(3, "order").shuffle(shuffled);
  CHECK(shuffled != values);
  std::sort(shuffled.begin(), shuffled.end());
  CHECK(shuffled == values);

  std::vector<int> histogram(7);
  Rng rng(5, "below");
  for (int i = 0; i < 70000; ++i) ++histogram[rng.below(7)];
  for (const int count : histogram) CHECK(std::abs(count - 10000) < 500);
}
