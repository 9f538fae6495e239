// Matrix products.

#include <cmath>

#include "ops_check/check_case.h"

namespace skrull {

namespace {

struct ProductCase {
  std::int64_t m, n, k;
  bool transpose_a, transpose_b, accumulate, bias;
  std::int64_t padding;

  std::string describe() const {
    std::string text = std::to_string(m) + " x " + std::to_string(n) + " x " + std::to_string(k);
    if (transpose_a) text += ", A transposed";
    if (transpose_b) text += ", B transposed";
    if (accumulate) text += ", added";
    if (bias) text += ", bias";
    if (padding != 0) text += ", rows " + std::to_string(padding) + " apart";
    return text;
  }
};

void check_product(CheckContext& context, const ProductCase& s, DType c_dtype) {
  CheckCase c(context, s.describe() + " to " + std::string(name_of(c_dtype)));
  const auto operand = [&](bool transposed, std::int64_t rows, std::int64_t cols, std::string_view name) {
    if (transposed) std::swap(rows, cols);
    return HostMatrix::random(context.dtype, rows, cols, name, 1.0, s.padding);
  };
  const HostMatrix a = operand(s.transpose_a, s.m, s.k, "a");
  const HostMatrix b = operand(s.transpose_b, s.k, s.n, "b");
  const HostMatrix bias = HostMatrix::random(context.dtype, 1, s.n, "bias");
  const HostMatrix before = HostMatrix::random(c_dtype, s.m, s.n, "c", 1.0, s.padding);
  Gemm gemm;
  gemm.a = c.input(a);
  gemm.b = c.input(b);
  gemm.transpose_a = s.transpose_a;
  gemm.transpose_b = s.transpose_b;
  gemm.accumulate = s.accumulate;
  if (s.bias) gemm.bias = c.input(bias);
  auto& result = c.result("c", before);
  gemm.c = result.view();
  c.run([&](Ops& ops, Stream& stream) { ops.gemm(stream, gemm); });
  c.expect(result, [&](std::int64_t i, std::int64_t j) {
    double value = (s.bias ? bias(0, j) : 0.0) + (s.accumulate ? before(i, j) : 0.0);
    double size = (s.bias ? std::abs(bias(0, j)) : 0.0) + (s.accumulate ? std::abs(before(i, j)) : 0.0);
    for (std::int64_t x = 0; x < s.k; ++x) {
      const double product = (s.transpose_a ? a(x, i) : a(i, x)) * (s.transpose_b ? b(j, x) : b(x, j));
      value += product;
      size += std::abs(product);
    }
    return Expected{value, float_error(1, size) + sum_error(s.k + 2, size)};
  });
}

}  // namespace

void check_gemm(CheckContext& context) {
  struct Shape {
    std::int64_t m, n, k;
  };
  std::vector<Shape> shapes = {{1, 1, 1}, {4, 6, 1}, {1, 7, 33}, {5, 1, 3}, {2, 70, 129}, {33, 17, 65}, {64, 64, 64}};
  if (!context.small_shapes_only) {
    shapes.push_back({130, 48, 257});
    shapes.push_back({1, 300, 200});
  }
  std::vector<DType> c_dtypes = {DType::float32};
  if (context.dtype == DType::bfloat16) c_dtypes.push_back(DType::bfloat16);
  for (const DType c_dtype : c_dtypes) {
    for (const Shape& shape : shapes) {
      for (int flags = 0; flags < 16; ++flags) {
        const std::int64_t padding = flags % 3 == 0 ? 5 : 0;
        check_product(context,
                      {shape.m, shape.n, shape.k, (flags & 1) != 0, (flags & 2) != 0, (flags & 4) != 0,
                       (flags & 8) != 0, padding},
                      c_dtype);
      }
    }
    // Products of nothing.
    check_product(context, {0, 4, 3, false, true, false, false, 0}, c_dtype);
    check_product(context, {4, 0, 3, false, true, false, false, 0}, c_dtype);
    check_product(context, {3, 4, 0, false, true, false, false, 0}, c_dtype);
    check_product(context, {3, 4, 0, false, false, true, true, 2}, c_dtype);
  }
}

}  // namespace skrull
