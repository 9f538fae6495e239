#pragma once

#include <cstdint>

#include "simt/sanitizers.h"
#include "simt/simt.h"
#include "support/catch.h"

namespace skrull::test {

/// For tests of many shapes. Sanitizers take long, and find what they find under most orders: the thread sanitizer asks
/// what orders the threads, not in which order they ran.
inline constexpr std::uint64_t few_orders = simt::thread_sanitizer ? 1 : simt::address_sanitizer ? 2 : 5;

/// Runs a test's body under so many orders of threads, blocks and streams.
template <class Body>
void under_each_seed(Body body, std::uint64_t seeds = 20) {
  for (std::uint64_t seed = 0; seed < seeds; ++seed) {
    CAPTURE(seed);
    simt::options().seed = seed;
    body();
  }
  simt::options().seed = 0;
}

}  // namespace skrull::test
