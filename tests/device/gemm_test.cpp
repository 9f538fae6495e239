#include <tuple>

#include "device/matrix.h"

using namespace skrull;
using skrull::test::Matrix;

namespace {

struct Case {
  std::int64_t m, n, k;
  bool transpose_a, transpose_b, accumulate, bias;
  std::int64_t padding;
};

/// One product against sums in fp64. Products of bfloat16 are exact in fp32, so both dtypes are held to fp32 sums.
void check_product(const Case& c, DType dtype, DType c_dtype, int threads) {
  CAPTURE(c.m, c.n, c.k, c.transpose_a, c.transpose_b, c.accumulate, c.bias, c.padding, threads);
  CAPTURE(name_of(dtype), name_of(c_dtype));
  const auto operand = [&](bool transposed, std::int64_t rows, std::int64_t cols, const char* name) {
    return transposed ? Matrix::random(dtype, cols, rows, name, 1.0, c.padding)
                      : Matrix::random(dtype, rows, cols, name, 1.0, c.padding);
  };
  const Matrix a = operand(c.transpose_a, c.m, c.k, "a");
  const Matrix b = operand(c.transpose_b, c.k, c.n, "b");
  const Matrix bias = Matrix::random(dtype, 1, c.n, "bias");
  Matrix result = Matrix::random(c_dtype, c.m, c.n, "c", 1.0, c.padding);
  const Matrix before = result;

  Gemm gemm;
  gemm.a = a.view();
  gemm.b = b.view();
  gemm.c = result.view();
  gemm.transpose_a = c.transpose_a;
  gemm.transpose_b = c.transpose_b;
  gemm.accumulate = c.accumulate;
  if (c.bias) gemm.bias = bias.view();
  Device& device = test::device_with_threads(threads);
  device.ops().gemm(device.compute_stream(), gemm);

  test::check_close(
      result,
      [&](std::int64_t i, std::int64_t j) {
        double sum = (c.bias ? bias(0, j) : 0.0) + (c.accumulate ? before(i, j) : 0.0);
        for (std::int64_t x = 0; x < c.k; ++x) {
          sum += (c.transpose_a ? a(x, i) : a(i, x)) * (c.transpose_b ? b(j, x) : b(x, j));
        }
        return sum;
      },
      2e-6, std::sqrt(static_cast<double>(c.k) + 1.0));
}

}  // namespace

TEST_CASE("matrix products agree with sums in fp64") {
  const std::vector<std::tuple<std::int64_t, std::int64_t, std::int64_t>> shapes = {
      {1, 1, 1},    {4, 6, 1},    {1, 7, 33},     {5, 1, 3},     {2, 70, 129},
      {33, 17, 65}, {64, 64, 64}, {130, 48, 257}, {1, 300, 200}, {3, 260, 96}};
  const auto [dtype, c_dtype] =
      GENERATE(std::pair{DType::float32, DType::float32}, std::pair{DType::bfloat16, DType::bfloat16},
               std::pair{DType::bfloat16, DType::float32});
  for (const auto& [m, n, k] : shapes) {
    for (int flags = 0; flags < 16; ++flags) {
      const Case c{
          m, n, k, (flags & 1) != 0, (flags & 2) != 0, (flags & 4) != 0, (flags & 8) != 0, flags % 3 == 0 ? 5 : 0};
      check_product(c, dtype, c_dtype, 1 + flags % 2);
    }
  }
}

TEST_CASE("a product larger than any block agrees with sums in fp64") {
  const auto [dtype, c_dtype] =
      GENERATE(std::pair{DType::float32, DType::float32}, std::pair{DType::bfloat16, DType::bfloat16});
  check_product({600, 30, 1100, false, true, false, true, 3}, dtype, c_dtype, 2);
  check_product({20, 1100, 1030, true, false, true, false, 0}, dtype, c_dtype, 2);
}

TEST_CASE("products of nothing: no rows, no columns, no terms") {
  const DType dtype = GENERATE(DType::float32, DType::bfloat16);
  check_product({0, 4, 3, false, true, false, false, 0}, dtype, dtype, 2);
  check_product({4, 0, 3, false, true, false, false, 0}, dtype, dtype, 2);
  check_product({3, 4, 0, false, true, false, false, 0}, dtype, dtype, 2);
  check_product({3, 4, 0, false, false, true, true, 2}, dtype, dtype, 2);
  check_product({3, 4, 0, false, false, false, true, 2}, dtype, DType::float32, 2);
}

TEST_CASE("a row of a product does not depend on the other rows") {
  const DType dtype = GENERATE(DType::float32, DType::bfloat16);
  Device& device = test::device_with_threads(2);
  Matrix a = Matrix::random(dtype, 37, 200, "a");
  const Matrix b = Matrix::random(dtype, 150, 200, "b");
  Matrix first(dtype, 37, 150);
  Matrix second(dtype, 37, 150);
  Gemm gemm;
  gemm.a = a.view();
  gemm.b = b.view();
  gemm.c = first.view();
  gemm.transpose_b = true;
  device.ops().gemm(device.compute_stream(), gemm);
  for (std::int64_t j = 0; j < a.cols(); ++j) a.set(20, j, 100.0 + static_cast<double>(j));
  gemm.c = second.view();
  device.ops().gemm(device.compute_stream(), gemm);
  for (std::int64_t i = 0; i < 37; ++i) {
    std::int64_t differing = 0;
    for (std::int64_t j = 0; j < 150; ++j) differing += first(i, j) != second(i, j) ? 1 : 0;
    CAPTURE(i);
    if (i == 20) {
      CHECK(differing == 150);
    } else {
      CHECK(differing == 0);
    }
  }
}

TEST_CASE("a product made on one stream serves the other: same bits, also at the same time") {
  const DType dtype = GENERATE(DType::float32, DType::bfloat16);
  Device& device = test::device_with_threads(1);
  const Matrix a = Matrix::random(dtype, 70, 300, "a");
  const Matrix b = Matrix::random(dtype, 90, 300, "b");
  Matrix here(DType::float32, 70, 90);
  Matrix there(DType::float32, 70, 90);
  Gemm gemm;
  gemm.a = a.view();
  gemm.b = b.view();
  gemm.transpose_b = true;
  for (int round = 0; round < 50; ++round) {
    gemm.c = there.view();
    device.ops().gemm(device.communication_stream(), gemm);
    gemm.c = here.view();
    device.ops().gemm(device.compute_stream(), gemm);
  }
  device.communication_stream().synchronize();
  CHECK(here == there);
  CHECK(here(69, 89) != 0);
}

TEST_CASE("mismatched products are refused with both shapes") {
  Device& device = test::device_with_threads(1);
  const Matrix a(DType::float32, 3, 5);
  const Matrix b(DType::float32, 4, 6);
  Matrix c(DType::float32, 3, 4);
  Gemm gemm;
  gemm.a = a.view();
  gemm.b = b.view();
  gemm.c = c.view();
  gemm.transpose_b = true;
  CHECK_THROWS_WITH(device.ops().gemm(device.compute_stream(), gemm), "gemm: B (transposed) is 4 x 6, expected 4 x 5");
  const Matrix narrow(DType::bfloat16, 4, 5);
  gemm.b = narrow.view();
  CHECK_THROWS_WITH(device.ops().gemm(device.compute_stream(), gemm), "gemm: B is bfloat16, expected float32");
  Matrix wide(DType::float32, 3, 6);
  const Matrix good(DType::float32, 4, 5);
  gemm.b = good.view();
  gemm.c = wide.view();
  CHECK_THROWS_WITH(device.ops().gemm(device.compute_stream(), gemm), "gemm: C is 3 x 6, expected 3 x 4");
}
