// The check of operations passes on the CPU device, and fails where an operation does.

#include "skrull/device/ops_check.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <set>

#include "device/host_device.h"
#include "support/catch.h"

using namespace skrull;
using Catch::Matchers::Contains;

namespace {

/// The operations of another device, with a fault in what they leave.
class FaultyOps final : public Ops {
 public:
  /// Called after an operation with its name and what it wrote. The device's memory is host memory.
  using Fault = std::function<void(std::string_view operation, TensorView result)>;

  FaultyOps(Ops& inner, Fault fault) : inner_(inner), fault_(std::move(fault)) {}

  void gemm(Stream& s, const Gemm& g) override {
    inner_.gemm(s, g);
    fault_("gemm", g.c);
  }
  void bias_backward(Stream& s, ConstTensorView dy, TensorView dbias) override {
    inner_.bias_backward(s, dy, dbias);
    fault_("bias_backward", dbias);
  }
  void embedding_forward(Stream& s, ConstTensorView ids, ConstTensorView table, TensorView out) override {
    inner_.embedding_forward(s, ids, table, out);
    fault_("embedding_forward", out);
  }
  void embedding_backward(Stream& s, ConstTensorView ids, ConstTensorView dout, TensorView dtable) override {
    inner_.embedding_backward(s, ids, dout, dtable);
    fault_("embedding_backward", dtable);
  }
  void rms_norm_forward(Stream& s, ConstTensorView x, ConstTensorView delta, ConstTensorView weight, float epsilon,
                        TensorView sum, TensorView y, TensorView inverse_rms) override {
    inner_.rms_norm_forward(s, x, delta, weight, epsilon, sum, y, inverse_rms);
    fault_("rms_norm_forward", y);
  }
  void rms_norm_backward(Stream& s, ConstTensorView dy, ConstTensorView x, ConstTensorView weight,
                         ConstTensorView inverse_rms, TensorView dx, TensorView dweight) override {
    inner_.rms_norm_backward(s, dy, x, weight, inverse_rms, dx, dweight);
    fault_("rms_norm_backward", dweight);
  }
  void rope_table(Stream& s, ConstTensorView positions, ConstTensorView frequencies, TensorView table) override {
    inner_.rope_table(s, positions, frequencies, table);
    fault_("rope_table", table);
  }
  void rope(Stream& s, TensorView x, ConstTensorView table, std::int64_t head_dim, bool inverse) override {
    inner_.rope(s, x, table, head_dim, inverse);
    fault_("rope", x);
  }
  void attention_forward(Stream& s, const AttentionForward& a) override {
    inner_.attention_forward(s, a);
    fault_("attention_forward", a.out);
  }
  void attention_merge(Stream& s, std::int64_t head_dim, ConstTensorView partial_out, ConstTensorView partial_lse,
                       TensorView out, TensorView lse) override {
    inner_.attention_merge(s, head_dim, partial_out, partial_lse, out, lse);
    fault_("attention_merge", out);
  }
  void attention_delta(Stream& s, std::int64_t head_dim, ConstTensorView out, ConstTensorView dout,
                       TensorView delta) override {
    inner_.attention_delta(s, head_dim, out, dout, delta);
    fault_("attention_delta", delta);
  }
  void attention_backward(Stream& s, const AttentionBackward& a) override {
    inner_.attention_backward(s, a);
    fault_("attention_backward", a.dk);
  }
  void swiglu_forward(Stream& s, ConstTensorView gate_up, TensorView y) override {
    inner_.swiglu_forward(s, gate_up, y);
    fault_("swiglu_forward", y);
  }
  void swiglu_backward(Stream& s, ConstTensorView gate_up, ConstTensorView dy, TensorView dgate_up) override {
    inner_.swiglu_backward(s, gate_up, dy, dgate_up);
    fault_("swiglu_backward", dgate_up);
  }
  void cross_entropy(Stream& s, const CrossEntropy& c) override {
    inner_.cross_entropy(s, c);
    fault_("cross_entropy", c.losses);
  }
  void adamw(Stream& s, const AdamW& a) override {
    inner_.adamw(s, a);
    fault_("adamw", a.parameter);
  }
  void sum_of_squares(Stream& s, ConstTensorView x, TensorView result) override {
    inner_.sum_of_squares(s, x, result);
    fault_("sum_of_squares", result);
  }
  void fill_zero(Stream& s, TensorView x) override {
    inner_.fill_zero(s, x);
    fault_("fill_zero", x);
  }
  void cast(Stream& s, ConstTensorView source, TensorView target) override {
    inner_.cast(s, source, target);
    fault_("cast", target);
  }
  void add(Stream& s, ConstTensorView source, TensorView target) override {
    inner_.add(s, source, target);
    fault_("add", target);
  }
  void scale(Stream& s, float factor, TensorView x) override {
    inner_.scale(s, factor, x);
    fault_("scale", x);
  }
  void gather_rows(Stream& s, ConstTensorView source, ConstTensorView rows, TensorView target) override {
    inner_.gather_rows(s, source, rows, target);
    fault_("gather_rows", target);
  }
  void scatter_rows(Stream& s, ConstTensorView source, ConstTensorView rows, TensorView target) override {
    inner_.scatter_rows(s, source, rows, target);
    fault_("scatter_rows", target);
  }

 private:
  Ops& inner_;
  Fault fault_;
};

Device& cpu() {
  static const std::unique_ptr<Device> device = make_cpu_device(2);
  return *device;
}

std::vector<OpCheck> check_with_fault(FaultyOps::Fault fault, OpsCheckOptions options = {}) {
  FaultyOps ops(cpu().ops(), std::move(fault));
  test::HostDevice device(ops);
  options.small_shapes_only = true;
  return check_ops(device, options);
}

std::set<std::string> failed_operations(const std::vector<OpCheck>& checks) {
  std::set<std::string> names;
  for (const OpCheck& check : checks) {
    if (!check.passed()) names.insert(check.operation);
  }
  return names;
}

float& element(TensorView x, std::int64_t row, std::int64_t col) {
  return x.as<float>()[row * x.row_stride() + col];
}

/// Puts the last element off by a few thousandths: of fp32 by bits, of the others by value.
void disturb_last(TensorView x) {
  if (x.empty()) return;
  const std::int64_t at = (x.rows() - 1) * x.row_stride() + x.cols() - 1;
  switch (x.dtype()) {
    case DType::float32:
      x.as<float>()[at] = x.as<float>()[at] * 1.004F + 1e-3F;
      return;
    case DType::bfloat16:
      x.as<bfloat16>()[at] = bfloat16(static_cast<float>(x.as<bfloat16>()[at]) * 1.05F + 1e-2F);
      return;
    case DType::float64:
      x.as<double>()[at] += 1e-6;
      return;
    default:
      x.as<std::int32_t>()[at] += 1;
  }
}

}  // namespace

TEST_CASE("the CPU device's operations agree with their definitions") {
  const std::vector<OpCheck> checks = check_ops(cpu());
  for (const OpCheck& check : checks) {
    if (!check.passed()) FAIL_CHECK(to_string(check));
  }
  std::set<std::string> seen;
  for (const OpCheck& check : checks) seen.insert(check.operation);
  CHECK(seen.size() == checked_operations().size());
}

TEST_CASE("a wrong element of any operation is found, and no other operation is blamed") {
  const std::vector<std::string_view> names = checked_operations();
  for (std::size_t i = 0; i < names.size(); ++i) {
    const std::string_view name = names[i];
    OpsCheckOptions options;
    options.operations = {std::string(name), std::string(names[(i + 1) % names.size()])};
    const auto checks = check_with_fault(
        [&](std::string_view operation, TensorView result) {
          if (operation == name) disturb_last(result);
        },
        options);
    CHECK(failed_operations(checks) == std::set<std::string>{std::string(name)});
  }
}

TEST_CASE("what is wrong is said with the element and what was expected") {
  OpsCheckOptions options;
  options.operations = {"scale"};
  options.dtypes = {DType::float32};
  const auto checks = check_with_fault(
      [](std::string_view, TensorView x) {
        if (x.rows() == 7) element(x, 4, 66) = 2.5F;
      },
      options);
  std::vector<std::string> failures;
  for (const OpCheck& check : checks) {
    if (!check.passed()) failures.push_back(to_string(check));
  }
  REQUIRE(failures.size() == 1);
  CHECK_THAT(failures[0], Contains("scale x, float32, 7 x 67, 5 apart: element (4, 66) is 2.5, expected "));
}

TEST_CASE("NaN, writes outside the rows, changed operands, other bits and errors fail") {
  OpsCheckOptions options;
  options.operations = {"add"};
  options.dtypes = {DType::float32};
  int runs = 0;
  const auto problem = [&](const FaultyOps::Fault& fault) {
    runs = 0;
    for (const OpCheck& check : check_with_fault(fault, options)) {
      if (!check.passed()) return check.problem;
    }
    return std::string("none");
  };
  CHECK_THAT(problem([](std::string_view, TensorView x) {
               if (!x.empty()) element(x, 0, 0) = std::numeric_limits<float>::quiet_NaN();
             }),
             Contains("element (0, 0) is nan"));
  CHECK(problem([](std::string_view, TensorView x) {
          if (!x.empty()) element(x, x.rows() - 1, x.cols()) = 0;
        }) == "was written outside its rows");
  CHECK(problem([&](std::string_view, TensorView x) {
          if (x.empty() || ++runs % 2 == 0) return;
          element(x, 0, 0) = std::nextafter(element(x, 0, 0), 1.0F);
        }) == "has other bits in a second run");
  CHECK(problem([](std::string_view, TensorView) { throw RunFailure("out of luck"); }) ==
        "stopped with \"out of luck\"");
  CHECK(problem([](std::string_view, TensorView) {}) == "none");
}

TEST_CASE("only the operations that were asked for are checked") {
  OpsCheckOptions options;
  options.operations = {"rope", "cast"};
  options.small_shapes_only = true;
  std::set<std::string> seen;
  for (const OpCheck& check : check_ops(cpu(), options)) seen.insert(check.operation);
  CHECK(seen == std::set<std::string>{"cast", "rope"});
  options.operations = {"attention"};
  CHECK_THROWS_WITH(check_ops(cpu(), options), Contains("no operation is called \"attention\"; there are gemm, "));
}
