// The operations between the products: embedding, norm, bias, rotary embedding, against their definitions in fp64.

#include <map>

#include "device/matrix.h"

using namespace skrull;
using skrull::test::check_close;
using skrull::test::Matrix;

namespace {

struct Shape {
  std::int64_t rows, cols, padding;
};
const std::vector<Shape> shapes = {{0, 5, 0},  {1, 1, 0},  {1, 37, 0},   {29, 1, 3},
                                   {5, 64, 0}, {7, 67, 5}, {300, 96, 0}, {131, 515, 9}};

}  // namespace

TEST_CASE("embedding rows and their gradients") {
  const DType dtype = GENERATE(DType::float32, DType::bfloat16);
  Device& device = test::device_with_threads(2);
  for (const Shape& s : shapes) {
    constexpr std::int64_t vocabulary = 11;
    Matrix ids(DType::int32, 1, s.rows);
    Rng rng(3, "ids");
    ids.fill([&](std::int64_t, std::int64_t) { return static_cast<double>(rng.below(vocabulary)); });
    const Matrix table = Matrix::random(dtype, vocabulary, s.cols, "table", 1, s.padding);
    Matrix out(dtype, s.rows, s.cols, s.padding);
    device.ops().embedding_forward(device.compute_stream(), ids.view(), table.view(), out.view());
    check_close(
        out, [&](std::int64_t t, std::int64_t j) { return table(static_cast<std::int64_t>(ids(0, t)), j); }, 0.0);

    const Matrix dout = Matrix::random(dtype, s.rows, s.cols, "dout", 1, s.padding);
    Matrix dtable = Matrix::random(DType::float32, vocabulary, s.cols, "dtable", 1, s.padding);
    const Matrix before = dtable;
    device.ops().embedding_backward(device.compute_stream(), ids.view(), dout.view(), dtable.view());
    // In token order, in fp32: exactly this.
    check_close(
        dtable,
        [&](std::int64_t row, std::int64_t j) {
          auto sum = static_cast<float>(before(row, j));
          for (std::int64_t t = 0; t < s.rows; ++t) {
            if (static_cast<std::int64_t>(ids(0, t)) == row) sum += static_cast<float>(dout(t, j));
          }
          return sum;
        },
        0.0);
  }
}

TEST_CASE("bias gradient is the sum over the rows, added") {
  const DType dtype = GENERATE(DType::float32, DType::bfloat16);
  Device& device = test::device_with_threads(2);
  for (const Shape& s : shapes) {
    const Matrix dy = Matrix::random(dtype, s.rows, s.cols, "dy", 1, s.padding);
    Matrix dbias = Matrix::random(DType::float32, 1, s.cols, "dbias");
    const Matrix before = dbias;
    device.ops().bias_backward(device.compute_stream(), dy.view(), dbias.view());
    check_close(
        dbias,
        [&](std::int64_t, std::int64_t j) {
          double sum = before(0, j);
          for (std::int64_t t = 0; t < s.rows; ++t) sum += dy(t, j);
          return sum;
        },
        1e-6, std::sqrt(static_cast<double>(s.rows)));
  }
}

TEST_CASE("rms_norm with and without a residual, against the definition") {
  const DType dtype = GENERATE(DType::float32, DType::bfloat16);
  const bool has_delta = GENERATE(false, true);
  const float epsilon = 1e-6F;
  Device& device = test::device_with_threads(2);
  for (const Shape& s : shapes) {
    Matrix x = Matrix::random(dtype, s.rows, s.cols, "x", 2, s.padding);
    const Matrix delta = Matrix::random(dtype, s.rows, s.cols, "delta", 1, s.padding);
    const Matrix weight = Matrix::random(dtype, 1, s.cols, "weight");
    Matrix sum(dtype, s.rows, s.cols, s.padding);
    Matrix y(dtype, s.rows, s.cols, s.padding);
    Matrix inverse_rms(DType::float32, 1, s.rows);
    device.ops().rms_norm_forward(device.compute_stream(), x.view(), has_delta ? delta.view() : ConstTensorView(),
                                  weight.view(), epsilon, has_delta ? sum.view() : TensorView(), y.view(),
                                  inverse_rms.view());
    if (has_delta) {
      check_close(
          sum, [&](std::int64_t t, std::int64_t j) { return x(t, j) + delta(t, j); }, 1e-7);
    }
    const Matrix& normalised = has_delta ? sum : x;
    const auto expected_inverse = [&](std::int64_t t) {
      double squares = 0;
      for (std::int64_t j = 0; j < s.cols; ++j) squares += normalised(t, j) * normalised(t, j);
      return 1 / std::sqrt(squares / static_cast<double>(s.cols) + static_cast<double>(epsilon));
    };
    std::vector<double> inverse;
    for (std::int64_t t = 0; t < s.rows; ++t) inverse.push_back(expected_inverse(t));
    check_close(
        inverse_rms, [&](std::int64_t, std::int64_t t) { return inverse[static_cast<std::size_t>(t)]; }, 1e-6, 0.0);
    check_close(
        y,
        [&](std::int64_t t, std::int64_t j) {
          return normalised(t, j) * inverse[static_cast<std::size_t>(t)] * weight(0, j);
        },
        1e-6);

    if (!has_delta) continue;
    Matrix in_place = x;  // the sum may overwrite x
    Matrix again(dtype, s.rows, s.cols, s.padding);
    device.ops().rms_norm_forward(device.compute_stream(), in_place.view(), delta.view(), weight.view(), epsilon,
                                  in_place.view(), again.view(), inverse_rms.view());
    CHECK(in_place == sum);
    CHECK(again == y);
  }
}

TEST_CASE("rms_norm gradients against the closed form") {
  const DType dtype = GENERATE(DType::float32, DType::bfloat16);
  Device& device = test::device_with_threads(2);
  for (const Shape& s : shapes) {
    const Matrix x = Matrix::random(dtype, s.rows, s.cols, "x", 2, s.padding);
    const Matrix dy = Matrix::random(dtype, s.rows, s.cols, "dy", 1, s.padding);
    const Matrix weight = Matrix::random(dtype, 1, s.cols, "weight");
    Matrix inverse_rms(DType::float32, 1, s.rows);
    std::vector<double> r;
    std::vector<double> mean;  // of dy w x^ over the row
    for (std::int64_t t = 0; t < s.rows; ++t) {
      double squares = 0;
      for (std::int64_t j = 0; j < s.cols; ++j) squares += x(t, j) * x(t, j);
      r.push_back(1 / std::sqrt(squares / static_cast<double>(s.cols) + 1e-6));
      inverse_rms.set(0, t, r.back());
      double sum = 0;
      for (std::int64_t j = 0; j < s.cols; ++j) sum += dy(t, j) * weight(0, j) * x(t, j) * r.back();
      mean.push_back(sum / static_cast<double>(s.cols));
    }
    Matrix dx = Matrix::random(dtype, s.rows, s.cols, "dx", 1, s.padding);
    const Matrix dx_before = dx;
    Matrix dweight = Matrix::random(DType::float32, 1, s.cols, "dweight");
    const Matrix dweight_before = dweight;
    device.ops().rms_norm_backward(device.compute_stream(), dy.view(), x.view(), weight.view(), inverse_rms.view(),
                                   dx.view(), dweight.view());
    check_close(
        dx,
        [&](std::int64_t t, std::int64_t j) {
          const auto row = static_cast<std::size_t>(t);
          return dx_before(t, j) + r[row] * (dy(t, j) * weight(0, j) - x(t, j) * r[row] * mean[row]);
        },
        2e-6, 4.0);
    check_close(
        dweight,
        [&](std::int64_t, std::int64_t j) {
          double sum = dweight_before(0, j);
          for (std::int64_t t = 0; t < s.rows; ++t) sum += dy(t, j) * x(t, j) * r[static_cast<std::size_t>(t)];
          return sum;
        },
        1e-6, std::sqrt(static_cast<double>(s.rows)) + 1);
  }
}

TEST_CASE("rope table: fp64 angles, also far out") {
  Device& device = test::device_with_threads(2);
  const Matrix positions = Matrix::of(DType::int32, {0, 1, 2, 1000, 131071, 1048575});
  Matrix frequencies(DType::float32, 1, 32);
  frequencies.fill([](std::int64_t, std::int64_t i) { return std::pow(1e6, -static_cast<double>(i) / 32); });
  Matrix table(DType::float32, 6, 64, 4);
  device.ops().rope_table(device.compute_stream(), positions.view(), frequencies.view(), table.view());
  check_close(
      table,
      [&](std::int64_t t, std::int64_t i) {
        const double angle = positions(0, t) * frequencies(0, i % 32);
        return i < 32 ? std::cos(angle) : std::sin(angle);
      },
      6e-8);
}

TEST_CASE("rope turns pairs (i, i + d/2) and its inverse turns back") {
  const DType dtype = GENERATE(DType::float32, DType::bfloat16);
  const std::int64_t head_dim = GENERATE(2, 16, 64, 80);
  const std::int64_t heads = GENERATE(1, 3);
  Device& device = test::device_with_threads(2);
  for (const std::int64_t tokens : {0, 1, 150}) {
    Matrix positions(DType::int32, 1, tokens);
    positions.fill([](std::int64_t, std::int64_t t) { return static_cast<double>(t * 7); });
    Matrix frequencies(DType::float32, 1, head_dim / 2);
    frequencies.fill([&](std::int64_t, std::int64_t i) {
      return std::pow(1e4, -2.0 * static_cast<double>(i) / static_cast<double>(head_dim));
    });
    Matrix table(DType::float32, tokens, head_dim);
    device.ops().rope_table(device.compute_stream(), positions.view(), frequencies.view(), table.view());
    Matrix x = Matrix::random(dtype, tokens, heads * head_dim, "x", 1, 6);
    const Matrix before = x;
    device.ops().rope(device.compute_stream(), x.view(), table.view(), head_dim, false);
    check_close(
        x,
        [&](std::int64_t t, std::int64_t j) {
          const std::int64_t head = j / head_dim * head_dim;
          const std::int64_t half = head_dim / 2;
          const std::int64_t i = j - head;
          const double angle = positions(0, t) * frequencies(0, i % half);
          const double a = before(t, head + i % half);
          const double b = before(t, head + half + i % half);
          return i < half ? a * std::cos(angle) - b * std::sin(angle) : b * std::cos(angle) + a * std::sin(angle);
        },
        4e-7);
    device.ops().rope(device.compute_stream(), x.view(), table.view(), head_dim, true);
    check_close(
        x, [&](std::int64_t t, std::int64_t j) { return before(t, j); }, dtype == DType::float32 ? 4e-7 : 0x1p-7);
  }
}

TEST_CASE("mismatched operands of the model's operations are refused with both shapes") {
  Device& device = test::device_with_threads(1);
  Stream& stream = device.compute_stream();
  Matrix x(DType::float32, 4, 6);
  Matrix narrow(DType::float32, 1, 5);
  Matrix scales(DType::float32, 1, 4);
  const Matrix ids(DType::int32, 1, 3);
  CHECK_THROWS_WITH(
      device.ops().rms_norm_forward(stream, x.view(), {}, narrow.view(), 1e-6F, {}, x.view(), scales.view()),
      "rms_norm_forward: weight is 1 x 5, expected 1 x 6");
  CHECK_THROWS_WITH(device.ops().bias_backward(stream, x.view(), narrow.view()),
                    "bias_backward: dbias is 1 x 5, expected 1 x 6");
  CHECK_THROWS_WITH(device.ops().embedding_forward(stream, ids.view(), x.view(), x.view()),
                    "gather_rows: rows is 1 x 3, expected 1 x 4");
  CHECK_THROWS_WITH(device.ops().rope(stream, x.view(), x.view(), 4, false),
                    "rope: 6 columns and head size 4, expected whole heads of an even size");
}
