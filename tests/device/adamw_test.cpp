#include "device/matrix.h"

using namespace skrull;
using skrull::test::check_close;
using skrull::test::Matrix;

TEST_CASE("AdamW follows its definition over several steps") {
  const std::int64_t count = GENERATE(0, 1, 37, 40000);
  const DType copy_dtype = GENERATE(DType::float32, DType::bfloat16);
  Device& device = test::device_with_threads(2);
  Matrix parameter = Matrix::random(DType::float32, 1, count, "parameter");
  Matrix first(DType::float32, 1, count);
  Matrix second(DType::float32, 1, count);
  Matrix copy(copy_dtype, 1, count);
  struct State {
    double p, m, v;
  };
  std::vector<State> expected;
  for (std::int64_t i = 0; i < count; ++i) expected.push_back({parameter(0, i), 0, 0});
  AdamW a;
  a.learning_rate = 3e-3;
  a.beta1 = 0.9;
  a.beta2 = 0.95;
  a.epsilon = 1e-8;
  a.weight_decay = 0.1;
  a.gradient_scale = 0.5;
  for (a.step = 1; a.step <= 5; ++a.step) {
    const Matrix gradient = Matrix::random(DType::float32, 1, count, "gradient" + std::to_string(a.step), 1e-2);
    a.parameter = parameter.view();
    a.gradient = gradient.view();
    a.first_moment = first.view();
    a.second_moment = second.view();
    a.compute_copy = a.step % 2 == 0 ? TensorView() : copy.view();
    device.ops().adamw(device.compute_stream(), a);
    const auto steps = static_cast<double>(a.step);
    for (std::int64_t i = 0; i < count; ++i) {
      State& s = expected[static_cast<std::size_t>(i)];
      const double g = a.gradient_scale * gradient(0, i);
      s.p -= a.learning_rate * a.weight_decay * s.p;
      s.m = a.beta1 * s.m + (1 - a.beta1) * g;
      s.v = a.beta2 * s.v + (1 - a.beta2) * g * g;
      s.p -= a.learning_rate / (1 - std::pow(a.beta1, steps)) * s.m /
             (std::sqrt(s.v / (1 - std::pow(a.beta2, steps))) + a.epsilon);
    }
  }
  check_close(
      parameter, [&](std::int64_t, std::int64_t i) { return expected[static_cast<std::size_t>(i)].p; }, 1e-6, 0.01);
  check_close(
      first, [&](std::int64_t, std::int64_t i) { return expected[static_cast<std::size_t>(i)].m; }, 1e-6, 1e-3);
  check_close(
      second, [&](std::int64_t, std::int64_t i) { return expected[static_cast<std::size_t>(i)].v; }, 1e-6, 1e-6);
  check_close(
      copy, [&](std::int64_t, std::int64_t i) { return parameter(0, i); }, 0.0);
}

TEST_CASE("AdamW of a worked example") {
  // p = 1, g = 0.5, step 1: m = 0.05, v = 0.00025; m^ = g, v^ = g^2, so p moves by lr (1 - 2e-8) after the decay.
  Device& device = test::device_with_threads(1);
  Matrix parameter = Matrix::of(DType::float32, {1.0});
  const Matrix gradient = Matrix::of(DType::float32, {0.5});
  Matrix first = Matrix::of(DType::float32, {0.0});
  Matrix second = Matrix::of(DType::float32, {0.0});
  AdamW a;
  a.parameter = parameter.view();
  a.gradient = gradient.view();
  a.first_moment = first.view();
  a.second_moment = second.view();
  a.learning_rate = 0.01;
  a.weight_decay = 0.1;
  device.ops().adamw(device.compute_stream(), a);
  CHECK(parameter(0, 0) == Approx(0.999 - 0.01).epsilon(1e-6));
  CHECK(first(0, 0) == Approx(0.05));
  CHECK(second(0, 0) == Approx(0.00025));
  a.step = 0;
  CHECK_THROWS_WITH(device.ops().adamw(device.compute_stream(), a), "adamw: step 0, expected 1 or more");
}

TEST_CASE("sum of squares is added in fp64") {
  const DType dtype = GENERATE(DType::float32, DType::bfloat16);
  Device& device = test::device_with_threads(2);
  struct Shape {
    std::int64_t rows, cols, padding;
  };
  for (const Shape& s : std::vector<Shape>{{0, 4, 0}, {1, 1, 0}, {3, 35, 2}, {1, 100001, 0}, {3, 40000, 5}}) {
    const Matrix x = Matrix::random(dtype, s.rows, s.cols, "x", 1, s.padding);
    Matrix result = Matrix::of(DType::float64, {0.5});
    device.ops().sum_of_squares(device.compute_stream(), x.view(), result.view());
    double expected = 0.5;
    for (std::int64_t i = 0; i < s.rows; ++i) {
      for (std::int64_t j = 0; j < s.cols; ++j) expected += x(i, j) * x(i, j);
    }
    CHECK(result(0, 0) == Approx(expected).epsilon(1e-13));
  }
}
