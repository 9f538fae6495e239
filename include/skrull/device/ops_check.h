#pragma once
// Every operation of a device against plain fp64 loops over its definition: what `skrull doctor --self-test`, the tests
// and the check on a GPU run.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "skrull/core/dtype.h"
#include "skrull/device/device.h"

namespace skrull {

struct OpsCheckOptions {
  std::vector<std::string> operations;                         ///< names as in Ops; empty = all of them
  std::vector<DType> dtypes{DType::float32, DType::bfloat16};  ///< of activations and weights
  /// Without the shapes of more than some thousand elements: for devices that are emulated.
  bool small_shapes_only = false;
  bool same_bits = true;  ///< whether a second run must give them
};

/// One result of one operation on one case. The operation ran twice on the same operands.
struct OpCheck {
  std::string operation;  ///< "rms_norm_backward"
  std::string result;     ///< "dweight"
  std::string shape;      ///< the case, for people: "7 x 67, row stride 72"
  DType dtype = DType::float32;
  /// Of the element that comes nearest to its tolerance, or is farthest beyond it: |value - expected|, and what is
  /// allowed, which follows from the dtypes, the number of summed terms and the sizes of the terms.
  double error = 0;
  double tolerance = 0;
  /// Empty when passed. Else the wrong element, an element outside the views that was written, an operand that was
  /// changed, other bits in the second run, or what the operation threw.
  std::string problem;

  bool passed() const { return problem.empty(); }
};

/// The names that OpsCheckOptions::operations may hold, in the order in which they are checked.
std::vector<std::string_view> checked_operations();

/// Runs the cases: ragged tails, one row, no rows, strided and unaligned views, the extremes of the arguments.
/// Allocates under "ops check" what a case needs, a few MiB, and frees it. Throws InvalidInput for an unknown
/// operation.
std::vector<OpCheck> check_ops(Device& device, const OpsCheckOptions& options = {});

/// "rms_norm_backward dweight, bfloat16, 7 x 67: element (0, 3) is 0.5, expected 0.25 within 1e-6".
std::string to_string(const OpCheck& check);

}  // namespace skrull
