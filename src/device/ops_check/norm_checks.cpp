// RMSNorm and its gradients.

#include <cmath>

#include "ops_check/check_case.h"

namespace skrull {

namespace {

constexpr float epsilon = 1e-6F;

/// 1 / sqrt(mean(x^2) + epsilon) of every row.
std::vector<double> inverse_rms(const HostMatrix& x) {
  std::vector<double> inverse;
  for (std::int64_t t = 0; t < x.rows(); ++t) {
    double squares = 0;
    for (std::int64_t j = 0; j < x.cols(); ++j) squares += x(t, j) * x(t, j);
    inverse.push_back(1 / std::sqrt(squares / static_cast<double>(x.cols()) + double{epsilon}));
  }
  return inverse;
}

/// Error of an inverse root mean square: the sum's, halved by the root, and its own roundings.
double inverse_error(std::int64_t width, double inverse) {
  return sum_error(width, inverse) / 2 + float_error(4, inverse);
}

void expect_normalised(CheckCase& c, const HostMatrix& x, const HostMatrix& weight, const CheckCase::Result& y,
                       const CheckCase::Result& inverse) {
  const std::vector<double> r = inverse_rms(x);
  c.expect(inverse, [&](std::int64_t, std::int64_t t) {
    const double value = r[static_cast<std::size_t>(t)];
    return Expected{value, inverse_error(x.cols(), value)};
  });
  c.expect(y, [&](std::int64_t t, std::int64_t j) {
    const double unscaled = x(t, j) * weight(0, j);
    const double value = unscaled * r[static_cast<std::size_t>(t)];
    return Expected{value, inverse_error(x.cols(), std::abs(value)) + float_error(2, std::abs(value))};
  });
}

void check_norm_alone(CheckContext& context, const CheckLayout& layout) {
  CheckCase c(context, layout.describe());
  const HostMatrix x = layout.random(context.dtype, "x", 2);
  const HostMatrix weight = HostMatrix::random(context.dtype, 1, layout.cols, "weight", 1, 0, layout.offset);
  const ConstTensorView x_view = c.input(x);
  const ConstTensorView weight_view = c.input(weight);
  auto& y = c.result("y", layout.random(context.dtype, "old y"));
  auto& inverse = c.result("inverse_rms", HostMatrix::random(DType::float32, 1, layout.rows, "old inverse"));
  c.run([&](Ops& ops, Stream& stream) {
    ops.rms_norm_forward(stream, x_view, {}, weight_view, epsilon, {}, y.view(), inverse.view());
  });
  expect_normalised(c, x, weight, y, inverse);
}

/// With `in_place` the sum overwrites x.
void check_norm_of_sum(CheckContext& context, const CheckLayout& layout, bool in_place) {
  CheckCase c(context, layout.describe() + (in_place ? ", sum over x" : ", with delta"));
  const HostMatrix x = layout.random(context.dtype, "x", 2);
  const HostMatrix delta = layout.random(context.dtype, "delta");
  const HostMatrix weight = HostMatrix::random(context.dtype, 1, layout.cols, "weight");
  const ConstTensorView delta_view = c.input(delta);
  const ConstTensorView weight_view = c.input(weight);
  auto& sum = c.result("sum", in_place ? x : layout.random(context.dtype, "old sum"));
  const ConstTensorView x_view = in_place ? ConstTensorView(sum.view()) : c.input(x);
  auto& y = c.result("y", layout.random(context.dtype, "old y"));
  auto& inverse = c.result("inverse_rms", HostMatrix::random(DType::float32, 1, layout.rows, "old inverse"));
  c.run([&](Ops& ops, Stream& stream) {
    ops.rms_norm_forward(stream, x_view, delta_view, weight_view, epsilon, sum.view(), y.view(), inverse.view());
  });
  c.expect(sum, [&](std::int64_t t, std::int64_t j) {
    const double value = x(t, j) + delta(t, j);
    return Expected{value, float_error(1, std::abs(value))};
  });
  // What is normalised is the sum as it was stored.
  expect_normalised(c, sum.values(), weight, y, inverse);
}

}  // namespace

void check_rms_norm_forward(CheckContext& context) {
  for (const CheckLayout& layout : check_layouts(context)) {
    check_norm_alone(context, layout);
    check_norm_of_sum(context, layout, false);
    check_norm_of_sum(context, layout, true);
  }
}

// With r = inverse_rms: dx += r (dy w - x r^2 mean(dy w x)), dweight += sum over rows of dy x r.
void check_rms_norm_backward(CheckContext& context) {
  for (const CheckLayout& layout : check_layouts(context)) {
    CheckCase c(context, layout.describe());
    const HostMatrix x = layout.random(context.dtype, "x", 2);
    const HostMatrix dy = layout.random(context.dtype, "dy");
    const HostMatrix weight = HostMatrix::random(context.dtype, 1, layout.cols, "weight");
    HostMatrix inverse(DType::float32, 1, layout.rows);
    const std::vector<double> exact_inverse = inverse_rms(x);
    inverse.fill([&](std::int64_t, std::int64_t t) { return exact_inverse[static_cast<std::size_t>(t)]; });
    struct Mean {
      double value = 0, size = 0;
    };
    std::vector<Mean> means;  // of dy w x over the row
    for (std::int64_t t = 0; t < x.rows(); ++t) {
      Mean mean;
      for (std::int64_t j = 0; j < x.cols(); ++j) {
        const double product = dy(t, j) * weight(0, j) * x(t, j) / static_cast<double>(x.cols());
        mean.value += product;
        mean.size += std::abs(product);
      }
      means.push_back(mean);
    }
    const HostMatrix dx_before = layout.random(context.dtype, "dx");
    const HostMatrix dweight_before =
        HostMatrix::random(DType::float32, 1, layout.cols, "dweight", 1, 0, layout.offset);
    const ConstTensorView dy_view = c.input(dy);
    const ConstTensorView x_view = c.input(x);
    const ConstTensorView weight_view = c.input(weight);
    const ConstTensorView inverse_view = c.input(inverse);
    auto& dx = c.result("dx", dx_before);
    auto& dweight = c.result("dweight", dweight_before);
    c.run([&](Ops& ops, Stream& stream) {
      ops.rms_norm_backward(stream, dy_view, x_view, weight_view, inverse_view, dx.view(), dweight.view());
    });
    c.expect(dx, [&](std::int64_t t, std::int64_t j) {
      const double r = inverse(0, t);
      const Mean& mean = means[static_cast<std::size_t>(t)];
      const double direct = r * dy(t, j) * weight(0, j);
      const double through_rms = r * r * r * x(t, j);
      const double value = dx_before(t, j) + direct - through_rms * mean.value;
      const double size = std::abs(dx_before(t, j)) + std::abs(direct) + std::abs(through_rms) * mean.size;
      return Expected{value, float_error(6, size) + sum_error(x.cols(), std::abs(through_rms) * mean.size)};
    });
    c.expect(dweight, [&](std::int64_t, std::int64_t j) {
      double value = dweight_before(0, j);
      double size = std::abs(value);
      for (std::int64_t t = 0; t < x.rows(); ++t) {
        const double product = dy(t, j) * x(t, j) * inverse(0, t);
        value += product;
        size += std::abs(product);
      }
      return Expected{value, float_error(2, size) + sum_error(x.rows() + 1, size)};
    });
  }
}

}  // namespace skrull
