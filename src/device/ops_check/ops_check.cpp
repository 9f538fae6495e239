#include "skrull/device/ops_check.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>

#include "ops_check/check_case.h"
#include "skrull/core/error.h"

namespace skrull {

namespace {

struct OperationCheck {
  std::string_view operation;
  void (*check)(CheckContext& context);
  bool in_compute_dtype = true;  ///< checked for each dtype of the options, else once
};

constexpr std::array operation_checks{
    OperationCheck{"gemm", check_gemm},
    OperationCheck{"bias_backward", check_bias_backward},
    OperationCheck{"embedding_forward", check_embedding_forward},
    OperationCheck{"embedding_backward", check_embedding_backward},
    OperationCheck{"rms_norm_forward", check_rms_norm_forward},
    OperationCheck{"rms_norm_backward", check_rms_norm_backward},
    OperationCheck{"rope_table", check_rope_table, false},
    OperationCheck{"rope", check_rope},
    OperationCheck{"attention_forward", check_attention_forward},
    OperationCheck{"attention_merge", check_attention_merge, false},
    OperationCheck{"attention_delta", check_attention_delta},
    OperationCheck{"attention_backward", check_attention_backward},
    OperationCheck{"swiglu_forward", check_swiglu_forward},
    OperationCheck{"swiglu_backward", check_swiglu_backward},
    OperationCheck{"cross_entropy", check_cross_entropy},
    OperationCheck{"adamw", check_adamw},
    OperationCheck{"sum_of_squares", check_sum_of_squares},
    OperationCheck{"fill_zero", check_fill_zero},
    OperationCheck{"cast", check_cast},
    OperationCheck{"add", check_add},
    OperationCheck{"scale", check_scale},
    OperationCheck{"gather_rows", check_gather_rows},
    OperationCheck{"scatter_rows", check_scatter_rows},
};

std::vector<OperationCheck> chosen_checks(const std::vector<std::string>& names) {
  if (names.empty()) return {operation_checks.begin(), operation_checks.end()};
  std::vector<OperationCheck> chosen;
  for (const std::string& name : names) {
    const auto* found = std::find_if(operation_checks.begin(), operation_checks.end(),
                                     [&](const OperationCheck& entry) { return entry.operation == name; });
    if (found == operation_checks.end()) {
      throw InvalidInput(
          fmt::format("no operation is called \"{}\"; there are {}", name, fmt::join(checked_operations(), ", ")));
    }
    chosen.push_back(*found);
  }
  return chosen;
}

}  // namespace

std::vector<std::string_view> checked_operations() {
  std::vector<std::string_view> names;
  names.reserve(operation_checks.size());
  for (const OperationCheck& entry : operation_checks) names.push_back(entry.operation);
  return names;
}

std::vector<OpCheck> check_ops(Device& device, const OpsCheckOptions& options) {
  std::vector<OpCheck> checks;
  for (const OperationCheck& entry : chosen_checks(options.operations)) {
    for (const DType dtype : options.dtypes) {
      CheckContext context{device, std::string(entry.operation), dtype, options.small_shapes_only, options.same_bits,
                           checks};
      entry.check(context);
      if (!entry.in_compute_dtype) break;
    }
  }
  return checks;
}

std::string to_string(const OpCheck& check) {
  return fmt::format(
      "{} {}, {}, {}: {}", check.operation, check.result, name_of(check.dtype), check.shape,
      check.passed() ? fmt::format("passed, off by {:.2g} of {:.2g}", check.error, check.tolerance) : check.problem);
}

}  // namespace skrull
