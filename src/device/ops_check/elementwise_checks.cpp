// Copies, conversions, sums and SwiGLU.

#include <cmath>
#include <limits>

#include "ops_check/check_case.h"

namespace skrull {

namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

double sigmoid(double x) {
  return 1 / (1 + std::exp(-x));
}

/// Roundings of a sigmoid in fp32, also where it is made of a fast base-2 exponential: the exponential's and the
/// division's, and those of its argument, which grow with the argument.
double sigmoid_roundings(double x) {
  return 10 + 2.5 * std::min(std::abs(x), 100.0);
}

/// Gate and up of tokens x 2 width: normal values, and in the first rows the ends of the range.
HostMatrix random_gate_up(const CheckContext& context, const CheckLayout& layout) {
  HostMatrix gate_up =
      HostMatrix::random(context.dtype, layout.rows, 2 * layout.cols, "gate_up", 3, layout.padding, layout.offset);
  constexpr double ends[] = {-200, -88, 0, 88, 200, -1e30, 1e30};
  for (std::int64_t j = 0; layout.rows > 1 && j < std::min<std::int64_t>(layout.cols, 7); ++j) {
    gate_up.set(1, j, ends[j]);
    gate_up.set(1, layout.cols + j, 2);
  }
  return gate_up;
}

void check_cast_to(CheckContext& context, DType to, const CheckLayout& layout) {
  CheckCase c(context, layout.describe() + " to " + std::string(name_of(to)));
  const HostMatrix source = layout.random(context.dtype, "source");
  const ConstTensorView source_view = c.input(source);
  auto& target = c.result(
      "target", HostMatrix::random(to, layout.rows, layout.cols, "old", 1, layout.padding == 0 ? 0 : 1, layout.offset));
  c.run([&](Ops& ops, Stream& stream) { ops.cast(stream, source_view, target.view()); });
  c.expect(target, [&](std::int64_t i, std::int64_t j) {
    const auto value = static_cast<float>(source(i, j));
    return Expected{to == DType::bfloat16 ? static_cast<float>(bfloat16(value)) : value};
  });
}

/// Values that a conversion must keep, and ties that it must round to even.
void check_cast_of_special_values(CheckContext& context) {
  CheckCase c(context, "NaN, infinities, ties, subnormal");
  const HostMatrix source = HostMatrix::of(DType::float32, {infinity, -infinity, std::nan(""), 3.4e38, 1e-40,
                                                            1 + 0x1p-8, 1 + 0x3p-8, -1 - 0x1p-8, 0.0, -0.0});
  const ConstTensorView source_view = c.input(source);
  auto& target = c.result("target", HostMatrix(DType::bfloat16, 1, source.cols()));
  c.run([&](Ops& ops, Stream& stream) { ops.cast(stream, source_view, target.view()); });
  c.expect(target, [&](std::int64_t, std::int64_t j) {
    return Expected{static_cast<float>(bfloat16(static_cast<float>(source(0, j))))};
  });
}

void check_copy_of(CheckContext& context, DType dtype, const CheckLayout& layout) {
  CheckCase c(context, layout.describe() + " of " + std::string(name_of(dtype)));
  const HostMatrix source = layout.random(dtype, "source", 1000);
  const ConstTensorView source_view = c.input(source);
  auto& target = c.result("target", HostMatrix::random(dtype, layout.rows, layout.cols, "old", 1000, 1));
  c.run([&](Ops& ops, Stream& stream) { ops.cast(stream, source_view, target.view()); });
  c.expect(target, [&](std::int64_t i, std::int64_t j) { return Expected{source(i, j)}; });
}

}  // namespace

void check_fill_zero(CheckContext& context) {
  std::vector<DType> dtypes = {context.dtype};
  if (context.dtype == DType::float32) dtypes = {DType::float32, DType::float64, DType::int32, DType::uint8};
  for (const DType dtype : dtypes) {
    for (const CheckLayout& layout : check_layouts(context)) {
      CheckCase c(context, layout.describe() + " of " + std::string(name_of(dtype)));
      auto& x = c.result("x", layout.random(dtype, "x", 50));
      c.run([&](Ops& ops, Stream& stream) { ops.fill_zero(stream, x.view()); });
      c.expect(x, [](std::int64_t, std::int64_t) { return Expected{}; });
    }
  }
}

void check_cast(CheckContext& context) {
  for (const CheckLayout& layout : check_layouts(context)) {
    for (const DType to : {DType::float32, DType::bfloat16}) check_cast_to(context, to, layout);
    if (context.dtype != DType::float32) continue;
    for (const DType dtype : {DType::int32, DType::float64, DType::uint8}) check_copy_of(context, dtype, layout);
  }
  if (context.dtype == DType::float32) check_cast_of_special_values(context);
}

void check_add(CheckContext& context) {
  for (const DType source_dtype : {DType::float32, DType::bfloat16}) {
    for (const CheckLayout& layout : check_layouts(context)) {
      CheckCase c(context, layout.describe() + " of " + std::string(name_of(source_dtype)));
      const HostMatrix source = layout.random(source_dtype, "source");
      const HostMatrix before = layout.random(context.dtype, "target");
      const ConstTensorView source_view = c.input(source);
      auto& target = c.result("target", before);
      c.run([&](Ops& ops, Stream& stream) { ops.add(stream, source_view, target.view()); });
      c.expect(target, [&](std::int64_t i, std::int64_t j) {
        const double value = source(i, j) + before(i, j);
        return Expected{value, float_error(1, std::abs(value))};
      });
    }
  }
}

void check_scale(CheckContext& context) {
  constexpr float factor = -0.37F;
  for (const CheckLayout& layout : check_layouts(context)) {
    CheckCase c(context, layout.describe());
    const HostMatrix before = layout.random(context.dtype, "x");
    auto& x = c.result("x", before);
    c.run([&](Ops& ops, Stream& stream) { ops.scale(stream, factor, x.view()); });
    c.expect(x, [&](std::int64_t i, std::int64_t j) {
      const double value = before(i, j) * double{factor};
      return Expected{value, float_error(1, std::abs(value))};
    });
  }
}

void check_swiglu_forward(CheckContext& context) {
  for (const CheckLayout& layout : check_layouts(context)) {
    CheckCase c(context, layout.describe());
    const HostMatrix gate_up = random_gate_up(context, layout);
    const ConstTensorView gate_up_view = c.input(gate_up);
    auto& y = c.result("y", layout.random(context.dtype, "old y"));
    c.run([&](Ops& ops, Stream& stream) { ops.swiglu_forward(stream, gate_up_view, y.view()); });
    c.expect(y, [&](std::int64_t t, std::int64_t j) {
      const double gate = gate_up(t, j);
      const double value = gate * sigmoid(gate) * gate_up(t, layout.cols + j);
      return Expected{value, float_error(2 + sigmoid_roundings(gate), std::abs(value))};
    });
  }
}

namespace {

/// dgate = dy up s (1 + gate (1 - s)), dup = dy gate s, with s the sigmoid of gate.
Expected expected_gate_up_gradient(const HostMatrix& gate_up, const HostMatrix& dy, std::int64_t t, std::int64_t j) {
  const std::int64_t width = dy.cols();
  const bool of_gate = j < width;
  const std::int64_t column = of_gate ? j : j - width;
  const double gate = gate_up(t, column);
  const double s = sigmoid(gate);
  if (!of_gate) {
    const double value = dy(t, column) * gate * s;
    return {value, float_error(2 + sigmoid_roundings(gate), std::abs(value))};
  }
  const double outer = dy(t, column) * gate_up(t, width + column) * s;
  // 1 - s carries the error of s, which is not small beside it when s is near 1.
  const double rest = 1 / (1 + std::exp(gate));
  const double value = outer * (1 + gate * rest);
  const double rest_error = std::min(float_error(2, s), rest + float_error(1, 1)) * std::abs(gate);
  const double size = std::abs(outer) * (1 + std::abs(gate) * rest);
  return {value, float_error(6 + 2 * sigmoid_roundings(gate), size) + std::abs(outer) * rest_error};
}

}  // namespace

void check_swiglu_backward(CheckContext& context) {
  for (const CheckLayout& layout : check_layouts(context)) {
    for (const bool in_place : {false, true}) {
      CheckCase c(context, layout.describe() + (in_place ? ", in place" : ""));
      const HostMatrix gate_up = random_gate_up(context, layout);
      const HostMatrix dy = layout.random(context.dtype, "dy");
      const ConstTensorView dy_view = c.input(dy);
      HostMatrix before = gate_up;
      if (!in_place) before.fill([](std::int64_t, std::int64_t) { return -1.0; });
      auto& dgate_up = c.result("dgate_up", before);
      const ConstTensorView gate_up_view = in_place ? ConstTensorView(dgate_up.view()) : c.input(gate_up);
      c.run([&](Ops& ops, Stream& stream) { ops.swiglu_backward(stream, gate_up_view, dy_view, dgate_up.view()); });
      c.expect(dgate_up, [&](std::int64_t t, std::int64_t j) { return expected_gate_up_gradient(gate_up, dy, t, j); });
    }
  }
}

}  // namespace skrull
