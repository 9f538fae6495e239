#pragma once
// Counts are 64-bit everywhere; where an outside interface wants fewer bits the narrowing is checked.

#include <cstdint>
#include <limits>

#include "skrull/core/error.h"

namespace skrull {

/// `value` as `To`; throws RunFailure when it does not fit.
template <class To, class From>
To narrow(From value) {
  const auto result = static_cast<To>(value);
  require(static_cast<From>(result) == value && ((result < To{}) == (value < From{})),
          "the count {} does not fit into {} bits", value, sizeof(To) * 8);
  return result;
}

/// a * b of non-negative counts; throws RunFailure on 64-bit overflow.
inline std::int64_t checked_multiply(std::int64_t a, std::int64_t b) {
  std::int64_t product = 0;
  require(a >= 0 && b >= 0 && !__builtin_mul_overflow(a, b, &product), "the product {} x {} overflows 64 bits", a, b);
  return product;
}

}  // namespace skrull
