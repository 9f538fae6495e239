// Sums across threads: the same bits with one thread and with two.

#include "device/matrix.h"

using namespace skrull;
using skrull::test::Matrix;

namespace {

/// What `operation` leaves in its result with one and with two threads is the same.
template <class Operation>
void check_same_bits(const Matrix& start, const Operation& operation) {
  Matrix one = start;
  Matrix two = start;
  operation(test::device_with_threads(1), one);
  operation(test::device_with_threads(2), two);
  CHECK(one == two);
  CHECK_FALSE(one == start);
}

}  // namespace

TEST_CASE("results do not depend on the number of threads") {
  const DType dtype = GENERATE(DType::float32, DType::bfloat16);
  const std::int64_t tokens = GENERATE(63, 777);
  constexpr std::int64_t width = 333;
  const Matrix x = Matrix::random(dtype, tokens, width, "x");
  const Matrix dy = Matrix::random(dtype, tokens, width, "dy");
  const Matrix weight = Matrix::random(dtype, 1, width, "weight");
  Matrix inverse(DType::float32, 1, tokens);
  inverse.fill([](std::int64_t, std::int64_t t) { return 0.5 + 0.001 * static_cast<double>(t); });

  SECTION("bias gradient") {
    check_same_bits(Matrix(DType::float32, 1, width), [&](Device& device, Matrix& result) {
      device.ops().bias_backward(device.compute_stream(), dy.view(), result.view());
    });
  }
  SECTION("norm gradients") {
    check_same_bits(Matrix(DType::float32, 1, width), [&](Device& device, Matrix& result) {
      Matrix dx(dtype, tokens, width);
      device.ops().rms_norm_backward(device.compute_stream(), dy.view(), x.view(), weight.view(), inverse.view(),
                                     dx.view(), result.view());
    });
    check_same_bits(Matrix(dtype, tokens, width), [&](Device& device, Matrix& result) {
      Matrix dweight(DType::float32, 1, width);
      device.ops().rms_norm_backward(device.compute_stream(), dy.view(), x.view(), weight.view(), inverse.view(),
                                     result.view(), dweight.view());
    });
  }
  SECTION("embedding gradient") {
    Matrix ids(DType::int32, 1, tokens);
    Rng rng(5, "ids");
    ids.fill([&](std::int64_t, std::int64_t) { return static_cast<double>(rng.below(20)); });
    check_same_bits(Matrix(DType::float32, 20, width), [&](Device& device, Matrix& result) {
      device.ops().embedding_backward(device.compute_stream(), ids.view(), dy.view(), result.view());
    });
  }
  SECTION("sum of squares") {
    check_same_bits(Matrix(DType::float64, 1, 1), [&](Device& device, Matrix& result) {
      device.ops().sum_of_squares(device.compute_stream(), x.view(), result.view());
    });
  }
  SECTION("elementwise: ranges of odd lengths do not change an element") {
    check_same_bits(Matrix(dtype, tokens, width), [&](Device& device, Matrix& result) {
      device.ops().add(device.compute_stream(), x.view(), result.view());
      device.ops().scale(device.compute_stream(), 1.7F, result.view());
    });
  }
}
