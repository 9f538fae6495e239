// Rates from times that noise has bent.
#include "rising_rates.h"

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "skrull/core/rng.h"
#include "support/catch.h"

using namespace skrull;

namespace {

double attention_work(double length) {
  return length * (length + 1) / 2;
}
double linear_work(double tokens) {
  return tokens;
}

using Work = double (*)(double);

/// At 1, 4, 16 .. tokens.
std::vector<Timing> timings_of(Work work, const std::vector<double>& seconds) {
  std::vector<Timing> timings;
  double at = 1;
  for (const double one : seconds) {
    const double growth = work == attention_work ? (2 * at + 1) / (at + 1) : 1.0;
    timings.push_back({at, work(at), growth, one});
    at *= 4;
  }
  return timings;
}

/// More tokens never take less time, and rates never fall.
void check_rising(Work work, const std::vector<LogLogCurve::Point>& rates) {
  for (std::size_t i = 1; i < rates.size(); ++i) CHECK(rates[i].value >= rates[i - 1].value);
  const LogLogCurve curve(rates, LogLogCurve::BelowFirst::proportional);
  double before = 0;
  for (double tokens = 1; tokens < 5 * rates.back().at; tokens = std::floor(tokens * 1.1 + 1)) {
    const double seconds = work(tokens) / curve(tokens);
    CAPTURE(tokens);
    CHECK(seconds >= before * (1 - 1e-9));
    before = seconds;
  }
}

}  // namespace

TEST_CASE("rates of times as they should be are what was measured") {
  const std::vector<LogLogCurve::Point> rates = rising_rates(timings_of(linear_work, {1, 1.5, 4, 15.9}));
  REQUIRE(rates.size() == 4);
  CHECK(rates[0].value == Approx(1));
  CHECK(rates[1].value == Approx(4 / 1.5));
  CHECK(rates[2].value == Approx(4));
  CHECK(rates[3].value == Approx(64 / 15.9));
  CHECK(rates[3].at == 64);
}

TEST_CASE("as many tokens as like in the same time: between the points none takes longer than more do") {
  check_rising(linear_work, rising_rates(timings_of(linear_work, {1, 1, 1, 1})));
  check_rising(attention_work, rising_rates(timings_of(attention_work, {1, 1, 1, 1})));
  check_rising(attention_work, rising_rates(timings_of(attention_work, {5, 3, 4, 1})));
}

TEST_CASE("rates that fall are evened out") {
  const std::vector<LogLogCurve::Point> rates = rising_rates(timings_of(linear_work, {1, 8, 16, 64}));
  CHECK(rates[0].value == Approx(std::sqrt(0.5)));
  CHECK(rates[1].value == Approx(std::sqrt(0.5)));
  CHECK(rates[2].value == Approx(1));
  CHECK(rates[3].value == Approx(1));
}

TEST_CASE("times of any kind") {
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    CAPTURE(seed);
    Rng rng(seed, "times");
    std::vector<double> seconds;
    for (int i = 0; i < 7; ++i) seconds.push_back(std::exp(3 * rng.normal()));
    check_rising(linear_work, rising_rates(timings_of(linear_work, seconds)));
    check_rising(attention_work, rising_rates(timings_of(attention_work, seconds)));
  }
}
