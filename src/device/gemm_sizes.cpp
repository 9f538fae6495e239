#include "skrull/device/gemm_sizes.h"

#include "skrull/device/operands.h"

namespace skrull {

GemmSizes check_gemm(const Gemm& g) {
  const std::int64_t m = g.transpose_a ? g.a.cols() : g.a.rows();
  const std::int64_t k = g.transpose_a ? g.a.rows() : g.a.cols();
  const std::int64_t n = g.transpose_b ? g.b.rows() : g.b.cols();
  check_computable("gemm", "A", g.a);
  check_dtype("gemm", "B", g.b, g.a.dtype());
  if (g.transpose_b) {
    check_shape("gemm", "B (transposed)", g.b, n, k);
  } else {
    check_shape("gemm", "B", g.b, k, n);
  }
  check_shape("gemm", "C", g.c, m, n);
  if (g.c.dtype() != DType::float32) check_dtype("gemm", "C", g.c, g.a.dtype());
  if (g.bias) {
    check_shape("gemm", "bias", g.bias, 1, n);
    check_dtype("gemm", "bias", g.bias, g.a.dtype());
  }
  return {m, n, k};
}

}  // namespace skrull
