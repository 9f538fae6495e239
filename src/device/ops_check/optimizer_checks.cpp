// AdamW, and the norm that gradients are clipped by.

#include <cmath>

#include "ops_check/check_case.h"

namespace skrull {

namespace {

struct AdamWCase {
  std::int64_t count;
  std::int64_t step;
  std::int64_t offset;
  bool copy;
};

void check_adamw_step(CheckContext& context, const AdamWCase& s) {
  CheckCase c(context, describe_layout(1, s.count, 0, s.offset) + ", step " + std::to_string(s.step) +
                           (s.copy ? "" : ", no copy"));
  const auto vector = [&](std::string_view name, double scale) {
    return HostMatrix::random(DType::float32, 1, s.count, name, scale, 0, s.offset);
  };
  const HostMatrix p0 = vector("parameter", 1);
  const HostMatrix gradient = vector("gradient", 1e-2);
  HostMatrix m0 = vector("first", 1e-3);
  HostMatrix v0 = vector("second", 1e-3);
  v0.fill([&](std::int64_t, std::int64_t i) { return s.step == 1 ? 0 : v0(0, i) * v0(0, i); });
  if (s.step == 1) m0.fill([](std::int64_t, std::int64_t) { return 0; });

  AdamW a;
  a.gradient = c.input(gradient);
  auto& parameter = c.result("parameter", p0);
  auto& first = c.result("first_moment", m0);
  auto& second = c.result("second_moment", v0);
  auto& copy =
      c.result("compute_copy", HostMatrix::random(context.dtype, 1, s.copy ? s.count : 0, "old", 1, 0, s.offset));
  a.parameter = parameter.view();
  a.first_moment = first.view();
  a.second_moment = second.view();
  if (s.copy) a.compute_copy = copy.view();
  a.learning_rate = 3e-3;
  a.beta2 = 0.95;
  a.weight_decay = 0.1;
  a.gradient_scale = 0.5;
  a.step = s.step;
  c.run([&](Ops& ops, Stream& stream) { ops.adamw(stream, a); });

  const auto steps = static_cast<double>(s.step);
  const auto moment1 = [&](std::int64_t i) {
    const double old = a.beta1 * m0(0, i);
    const double fresh = (1 - a.beta1) * a.gradient_scale * gradient(0, i);
    return Expected{old + fresh, float_error(5, std::abs(old) + std::abs(fresh))};
  };
  const auto moment2 = [&](std::int64_t i) {
    const double g = a.gradient_scale * gradient(0, i);
    const double value = a.beta2 * v0(0, i) + (1 - a.beta2) * g * g;
    return Expected{value, float_error(6, value)};
  };
  c.expect(first, [&](std::int64_t, std::int64_t i) { return moment1(i); });
  c.expect(second, [&](std::int64_t, std::int64_t i) { return moment2(i); });
  c.expect(parameter, [&](std::int64_t, std::int64_t i) {
    const Expected m = moment1(i);
    const double root = std::sqrt(moment2(i).value / (1 - std::pow(a.beta2, steps))) + a.epsilon;
    const double rate = a.learning_rate / (1 - std::pow(a.beta1, steps)) / root;
    const double kept = (1 - a.learning_rate * a.weight_decay) * p0(0, i);
    const double change = rate * m.value;
    return Expected{kept - change, rate * m.error + float_error(10, std::abs(change)) +
                                       float_error(3, std::abs(kept) + std::abs(change))};
  });
  // The copy is the parameter that was stored.
  c.expect(copy, [&](std::int64_t, std::int64_t i) {
    const auto stored = static_cast<float>(parameter(0, i));
    return Expected{context.dtype == DType::bfloat16 ? static_cast<float>(bfloat16(stored)) : stored};
  });
}

}  // namespace

void check_adamw(CheckContext& context) {
  std::vector<AdamWCase> cases = {{0, 1, 0, true},  {1, 1, 0, true},    {37, 1, 0, false},
                                  {37, 2, 1, true}, {1028, 3, 0, true}, {1030, 1000, 4, true}};
  if (!context.small_shapes_only) cases.push_back({40000, 100000, 0, true});
  for (const AdamWCase& s : cases) check_adamw_step(context, s);
}

void check_sum_of_squares(CheckContext& context) {
  std::vector<CheckLayout> layouts = check_layouts(context);
  layouts.push_back({1, 4099});
  if (!context.small_shapes_only) layouts.push_back({1, 300001});
  for (const CheckLayout& layout : layouts) {
    CheckCase c(context, layout.describe());
    const HostMatrix x = layout.random(context.dtype, "x");
    const ConstTensorView x_view = c.input(x);
    auto& result = c.result("result", HostMatrix::of(DType::float64, {0.5}));
    c.run([&](Ops& ops, Stream& stream) { ops.sum_of_squares(stream, x_view, result.view()); });
    c.expect(result, [&](std::int64_t, std::int64_t) {
      double sum = 0.5;
      for (std::int64_t i = 0; i < x.rows(); ++i) {
        for (std::int64_t j = 0; j < x.cols(); ++j) sum += x(i, j) * x(i, j);
      }
      // Both sums are formed in fp64.
      return Expected{sum, 2 * static_cast<double>(x.rows() * x.cols()) * rounding_of(DType::float64) * sum};
    });
  }
}

}  // namespace skrull
