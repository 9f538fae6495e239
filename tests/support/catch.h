#pragma once
// Catch2 of either major version, with the few names that differ made equal.

#if SKRULL_CATCH2_MAJOR == 2
#include <catch2/catch.hpp>
namespace Catch::Matchers {
inline auto ContainsSubstring(const std::string& part) {
  return Contains(part);
}
}  // namespace Catch::Matchers
#else
#include <catch2/catch_all.hpp>
using Catch::Approx;
#endif
