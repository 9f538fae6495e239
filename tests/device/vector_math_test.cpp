#include "cpu/vector_math.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "skrull/core/rng.h"
#include "support/catch.h"

using namespace skrull;

namespace {

constexpr float infinity = std::numeric_limits<float>::infinity();

/// Distance of `value` to the exact `expected` in units of the last place of the fp32 nearest to `expected`.
double error_in_ulp(float value, double expected) {
  if (std::isinf(value) || expected > std::numeric_limits<float>::max())
    return expected > 0x1.fffffep127 ? (std::isinf(value) ? 0 : infinity) : infinity;
  const int exponent = std::max(std::ilogb(expected), -126);
  return std::abs(static_cast<double>(value) - expected) / std::ldexp(1.0, exponent - 23);
}

template <class Vector, class Exact>
double worst_error(Vector vector, Exact exact, float from, float to, int count) {
  double worst = 0;
  float in[simd::lanes];
  float out[simd::lanes];
  for (int i = 0; i < count; i += simd::lanes) {
    for (int lane = 0; lane < simd::lanes; ++lane)
      in[lane] = from + (to - from) * (static_cast<float>(i + lane) / static_cast<float>(count));
    simd::store(out, vector(simd::load(in)));
    for (int lane = 0; lane < simd::lanes; ++lane)
      worst = std::max(worst, error_in_ulp(out[lane], exact(static_cast<double>(in[lane]))));
  }
  return worst;
}

float first(simd::Floats x) {
  return x[0];
}

}  // namespace

TEST_CASE("exp and exp2 are within 1.3 ulp of the exact value over the whole range") {
  const auto vector_exp = [](simd::Floats x) { return simd::exp(x); };
  const auto vector_exp2 = [](simd::Floats x) { return simd::exp2(x); };
  const auto exact_exp = [](double x) { return std::exp(x); };
  const auto exact_exp2 = [](double x) { return std::exp2(x); };
  CHECK(worst_error(vector_exp, exact_exp, -110, 95, 4000000) < 1.3);
  CHECK(worst_error(vector_exp, exact_exp, -1, 1, 1000000) < 1.3);
  CHECK(worst_error(vector_exp2, exact_exp2, -160, 135, 4000000) < 1.3);
  CHECK(worst_error(vector_exp2, exact_exp2, -1, 1, 1000000) < 1.3);
}

TEST_CASE("exp and exp2 at the ends of the range") {
  CHECK(first(simd::exp(simd::broadcast(0))) == 1);
  CHECK(first(simd::exp(simd::broadcast(-infinity))) == 0);
  CHECK(first(simd::exp(simd::broadcast(-1e30F))) == 0);
  CHECK(first(simd::exp(simd::broadcast(infinity))) == infinity);
  CHECK(first(simd::exp(simd::broadcast(1e30F))) == infinity);
  CHECK(std::isnan(first(simd::exp(simd::broadcast(std::nanf(""))))));
  CHECK(first(simd::exp(simd::broadcast(-103.9F))) == 0x1p-149F);
  CHECK(std::isfinite(first(simd::exp(simd::broadcast(88.72F)))));

  for (int power = -149; power <= 127; ++power)
    CHECK(first(simd::exp2(simd::broadcast(static_cast<float>(power)))) == std::ldexp(1.0F, power));
  CHECK(first(simd::exp2(simd::broadcast(128))) == infinity);
  CHECK(first(simd::exp2(simd::broadcast(-infinity))) == 0);
  CHECK(first(simd::exp2(simd::broadcast(infinity))) == infinity);
  CHECK(std::isnan(first(simd::exp2(simd::broadcast(std::nanf(""))))));
}

TEST_CASE("reductions see every lane") {
  for (int lane = 0; lane < simd::lanes; ++lane) {
    float values[simd::lanes] = {};
    values[lane] = 3;
    CHECK(simd::sum(simd::load(values)) == 3);
    CHECK(simd::maximum(simd::load(values)) == 3);
    for (float& value : values) value -= 10;
    CHECK(simd::maximum(simd::load(values)) == -7);
  }
  CHECK(simd::maximum(simd::broadcast(-infinity)) == -infinity);
}

TEST_CASE("partial loads and stores touch the counted lanes alone") {
  for (int count = 0; count <= simd::lanes; ++count) {
    std::vector<float> exact(static_cast<std::size_t>(count));  // a sanitizer sees a read or write behind the end
    std::vector<bfloat16> rounded(static_cast<std::size_t>(count));
    for (int i = 0; i < count; ++i) exact[static_cast<std::size_t>(i)] = static_cast<float>(i + 1);
    const simd::Floats x = simd::load_first(exact.data(), count);
    simd::store_first(rounded.data(), x, count);
    const simd::Floats y = simd::load_first(rounded.data(), count);
    const simd::Ints mask = simd::first_lanes(count);
    for (int lane = 0; lane < simd::lanes; ++lane) {
      CHECK(x[lane] == (lane < count ? static_cast<float>(lane + 1) : 0.0F));
      CHECK(y[lane] == x[lane]);
      CHECK(mask[lane] == (lane < count ? -1 : 0));
    }
    float target[simd::lanes];
    for (float& value : target) value = -5;
    simd::store_first(target, simd::broadcast(7), count);
    for (int lane = 0; lane < simd::lanes; ++lane) CHECK(target[lane] == (lane < count ? 7.0F : -5.0F));
  }
}

TEST_CASE("bfloat16 lanes round like the scalar type") {
  Rng rng(1, "bfloat16");
  for (int round = 0; round < 20000; ++round) {
    float values[simd::lanes];
    for (float& value : values) value = std::bit_cast<float>(static_cast<std::uint32_t>(rng.bits()));
    bfloat16 rounded[simd::lanes];
    simd::store(rounded, simd::load(values));
    float widened[simd::lanes];
    simd::store(widened, simd::load(rounded));
    bool equal = true;
    for (int lane = 0; lane < simd::lanes; ++lane) {
      equal = equal && rounded[lane].bits == bfloat16(values[lane]).bits;
      equal = equal && std::bit_cast<std::uint32_t>(widened[lane]) == std::uint32_t{rounded[lane].bits} << 16U;
    }
    REQUIRE(equal);
  }
}
