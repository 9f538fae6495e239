#include <algorithm>
#include <limits>

#include "device/matrix.h"

using namespace skrull;
using skrull::test::check_close;
using skrull::test::Matrix;

namespace {

struct Shape {
  std::int64_t rows, cols, padding;
};

/// Nothing, one of each, ragged tails, strided, and enough for both threads.
const std::vector<Shape> shapes = {{0, 5, 0},  {3, 0, 2},  {1, 1, 0},     {1, 37, 0},   {29, 1, 3},
                                   {5, 64, 0}, {7, 67, 5}, {130, 515, 0}, {130, 515, 9}};

double silu(double x) {
  return x / (1 + std::exp(-x));
}
double silu_slope(double x) {
  const double sigmoid = 1 / (1 + std::exp(-x));
  return sigmoid * (1 + x * (1 - sigmoid));
}

}  // namespace

TEST_CASE("fill_zero clears the view alone") {
  const DType dtype = GENERATE(DType::float32, DType::bfloat16, DType::float64, DType::int32);
  Device& device = test::device_with_threads(2);
  for (const Shape& s : shapes) {
    Matrix x = Matrix::random(dtype, s.rows, s.cols, "x", 50, s.padding);
    device.ops().fill_zero(device.compute_stream(), x.view());
    check_close(
        x, [](std::int64_t, std::int64_t) { return 0.0; }, 0.0);
  }
}

TEST_CASE("cast converts by rounding to nearest even, or copies") {
  const DType from = GENERATE(DType::float32, DType::bfloat16);
  const DType to = GENERATE(DType::float32, DType::bfloat16);
  Device& device = test::device_with_threads(2);
  for (const Shape& s : shapes) {
    const Matrix x = Matrix::random(from, s.rows, s.cols, "x", 1, s.padding);
    Matrix y(to, s.rows, s.cols, s.padding == 0 ? 0 : 1);
    device.ops().cast(device.compute_stream(), x.view(), y.view());
    check_close(
        y,
        [&](std::int64_t i, std::int64_t j) {
          const auto value = static_cast<float>(x(i, j));
          return to == DType::bfloat16 ? static_cast<float>(bfloat16(value)) : value;
        },
        0.0);
  }
}

TEST_CASE("cast keeps NaN and infinity, and copies other dtypes whole") {
  Device& device = test::device_with_threads(1);
  const double infinity = std::numeric_limits<double>::infinity();
  const Matrix x = Matrix::of(DType::float32, {infinity, -infinity, std::nan(""), 3.4e38, 1e-40});
  Matrix y(DType::bfloat16, 1, 5);
  device.ops().cast(device.compute_stream(), x.view(), y.view());
  CHECK(y(0, 0) == infinity);
  CHECK(y(0, 1) == -infinity);
  CHECK(std::isnan(y(0, 2)));
  CHECK(y(0, 3) == infinity);
  const Matrix ids = Matrix::of(DType::int32, {1, -100, 2147483647});
  Matrix copy(DType::int32, 1, 3);
  device.ops().cast(device.compute_stream(), ids.view(), copy.view());
  CHECK(copy == ids);
  CHECK_THROWS_WITH(device.ops().cast(device.compute_stream(), x.view(), Matrix(DType::int32, 1, 5).view()),
                    "cast: target is int32, expected float32 or bfloat16");
}

TEST_CASE("add and scale") {
  const DType source_dtype = GENERATE(DType::float32, DType::bfloat16);
  const DType dtype = GENERATE(DType::float32, DType::bfloat16);
  Device& device = test::device_with_threads(2);
  for (const Shape& s : shapes) {
    const Matrix x = Matrix::random(source_dtype, s.rows, s.cols, "x", 1, s.padding);
    Matrix y = Matrix::random(dtype, s.rows, s.cols, "y", 1, s.padding);
    const Matrix before = y;
    device.ops().add(device.compute_stream(), x.view(), y.view());
    check_close(
        y, [&](std::int64_t i, std::int64_t j) { return x(i, j) + before(i, j); }, 1e-7);
    const Matrix sum = y;
    device.ops().scale(device.compute_stream(), -0.37F, y.view());
    check_close(
        y, [&](std::int64_t i, std::int64_t j) { return sum(i, j) * static_cast<double>(-0.37F); }, 1e-7);
  }
}

TEST_CASE("rows are gathered and scattered by index") {
  const DType dtype = GENERATE(DType::float32, DType::bfloat16, DType::int32);
  Device& device = test::device_with_threads(2);
  const Matrix source = Matrix::random(dtype, 6, 9, "source", 30, 2);
  const Matrix picked = Matrix::of(DType::int32, {5, 0, 0, 3});
  Matrix gathered(dtype, 4, 9, 1);
  device.ops().gather_rows(device.compute_stream(), source.view(), picked.view(), gathered.view());
  check_close(
      gathered, [&](std::int64_t i, std::int64_t j) { return source(static_cast<std::int64_t>(picked(0, i)), j); },
      0.0);

  const Matrix places = Matrix::of(DType::int32, {7, 2, 0, 4, 1, 6});
  Matrix scattered = Matrix::random(dtype, 8, 9, "target", 30, 4);
  const Matrix before = scattered;
  device.ops().scatter_rows(device.compute_stream(), source.view(), places.view(), scattered.view());
  check_close(
      scattered,
      [&](std::int64_t i, std::int64_t j) {
        for (std::int64_t from = 0; from < 6; ++from) {
          if (static_cast<std::int64_t>(places(0, from)) == i) return source(from, j);
        }
        return before(i, j);
      },
      0.0);
  CHECK_THROWS_WITH(device.ops().gather_rows(device.compute_stream(), source.view(), places.view(), gathered.view()),
                    "gather_rows: rows is 1 x 6, expected 1 x 4");
}

TEST_CASE("swiglu and its gradient against the closed form") {
  const DType dtype = GENERATE(DType::float32, DType::bfloat16);
  Device& device = test::device_with_threads(2);
  for (const Shape& s : shapes) {
    const std::int64_t width = s.cols;
    const Matrix gate_up = Matrix::random(dtype, s.rows, 2 * width, "gate_up", 3, s.padding);
    Matrix y(dtype, s.rows, width, s.padding);
    device.ops().swiglu_forward(device.compute_stream(), gate_up.view(), y.view());
    check_close(
        y, [&](std::int64_t i, std::int64_t j) { return silu(gate_up(i, j)) * gate_up(i, width + j); }, 5e-7);

    const Matrix dy = Matrix::random(dtype, s.rows, width, "dy", 1, s.padding);
    const auto gradient = [&](std::int64_t i, std::int64_t j) {
      if (j < width) return dy(i, j) * gate_up(i, width + j) * silu_slope(gate_up(i, j));
      return dy(i, j - width) * silu(gate_up(i, j - width));
    };
    Matrix dgate_up(dtype, s.rows, 2 * width, s.padding);
    device.ops().swiglu_backward(device.compute_stream(), gate_up.view(), dy.view(), dgate_up.view());
    check_close(dgate_up, gradient, 1e-6);
    Matrix in_place = gate_up;
    device.ops().swiglu_backward(device.compute_stream(), in_place.view(), dy.view(), in_place.view());
    CHECK(in_place == dgate_up);
  }
}

TEST_CASE("swiglu at the ends of its range") {
  Device& device = test::device_with_threads(1);
  const Matrix gate_up = Matrix::of(DType::float32, {-200, -88, 0, 88, 200, -1e30, 1e30, 2, 2, 2, 2, 2, 2, 2});
  Matrix y(DType::float32, 1, 7);
  device.ops().swiglu_forward(device.compute_stream(), gate_up.view(), y.view());
  CHECK(y(0, 0) == 0);
  CHECK(y(0, 1) == Approx(2 * silu(-88)).margin(1e-36));
  CHECK(y(0, 2) == 0);
  CHECK(y(0, 3) == 176);
  CHECK(y(0, 4) == 400);
  CHECK(y(0, 5) == 0);
  CHECK(y(0, 6) == Approx(2e30));
  const Matrix dy = Matrix::of(DType::float32, std::vector<double>(7, 1.0));
  Matrix gradient(DType::float32, 1, 14);
  device.ops().swiglu_backward(device.compute_stream(), gate_up.view(), dy.view(), gradient.view());
  const double expected[14] = {0, 0, 1, 2, 2, 0, 2, 0, 0, 0, 88, 200, 0, 1e30};
  for (std::int64_t j = 0; j < 14; ++j) CHECK(gradient(0, j) == Approx(expected[j]).margin(1e-30));
}

TEST_CASE("mismatched elementwise operands are refused with both shapes") {
  Device& device = test::device_with_threads(1);
  Stream& stream = device.compute_stream();
  Matrix a(DType::float32, 2, 6);
  Matrix b(DType::float32, 2, 4);
  CHECK_THROWS_WITH(device.ops().add(stream, a.view(), b.view()), "add: target is 2 x 4, expected 2 x 6");
  CHECK_THROWS_WITH(device.ops().swiglu_forward(stream, a.view(), b.view()),
                    "swiglu_forward: gate_up is 2 x 6, expected 2 x 8");
  CHECK_THROWS_WITH(device.ops().scale(stream, 1.0F, Matrix(DType::int32, 1, 1).view()),
                    "scale: x is int32, expected float32 or bfloat16");
}
