#include "skrull/core/dtype.h"

#include <cmath>
#include <limits>

#include "support/catch.h"

using namespace skrull;

TEST_CASE("bfloat16 rounds to nearest even") {
  CHECK(bfloat16(1.0F).bits == 0x3F80);
  CHECK(bfloat16(1.0F + 0x1p-8F).bits == 0x3F80);            // tie, to even
  CHECK(bfloat16(1.0F + 0x1p-7F + 0x1p-8F).bits == 0x3F82);  // tie, to even
  CHECK(bfloat16(1.0F + 0x1.1p-8F).bits == 0x3F81);
  CHECK(std::isinf(static_cast<float>(bfloat16(std::numeric_limits<float>::max()))));
  CHECK(std::isnan(static_cast<float>(bfloat16(std::bit_cast<float>(0x7F800001U)))));
}

TEST_CASE("every half-precision value survives the way through fp32") {
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    const float value = float_from_half(static_cast<std::uint16_t>(bits));
    if (std::isnan(value)) continue;
    REQUIRE(half_from_float(value) == bits);
  }
  CHECK(float_from_half(0x3C00) == 1.0F);
  CHECK(float_from_half(0x0001) == 0x1p-24F);
  CHECK(half_from_float(65520.0F) == 0x7C00);
  CHECK(half_from_float(65519.0F) == 0x7BFF);
}
