#pragma once
// What the tests of operations share: host matrices, their comparison, and devices.

#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "ops_check/host_matrix.h"
#include "skrull/core/rng.h"
#include "skrull/core/tensor.h"
#include "skrull/device/device.h"
#include "skrull/device/ops.h"
#include "support/catch.h"

namespace skrull::test {

using Matrix = HostMatrix;

/// |value - expected| <= tolerance x max(scale, |expected|) for every element, where a bfloat16 result may also be off
/// by its own rounding (2^-8). NaN fails.
inline void check_close(const Matrix& value, const std::function<double(std::int64_t, std::int64_t)>& expected,
                        double tolerance, double scale = 1.0) {
  const double rounding = value.dtype() == DType::bfloat16 ? 0x1p-8 : 0.0;
  for (std::int64_t i = 0; i < value.rows(); ++i) {
    for (std::int64_t j = 0; j < value.cols(); ++j) {
      const double want = expected(i, j);
      const double got = value(i, j);
      const double allowed = tolerance * std::max(scale, std::abs(want)) + rounding * std::abs(want);
      if (!(std::abs(got - want) <= allowed)) {
        FAIL("element (" << i << ", " << j << ") is " << got << ", expected " << want << " within " << allowed);
      }
    }
  }
  CHECK(value.guards_intact());
}

/// Devices of one and of two threads, made once.
inline Device& device_with_threads(int threads) {
  static const std::unique_ptr<Device> one = make_cpu_device(1);
  static const std::unique_ptr<Device> two = make_cpu_device(2);
  return threads == 1 ? *one : *two;
}

}  // namespace skrull::test
