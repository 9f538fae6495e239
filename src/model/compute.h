#pragma once
// Where the model computes, and its three kinds of matrix product.

#include "skrull/core/tensor.h"
#include "skrull/device/ops.h"
#include "skrull/model/qwen2_config.h"

namespace skrull {

struct Compute {
  Ops& ops;
  Stream& stream;
  const Qwen2Config& config;
};

/// y[T, out] = x[T, in] W[out, in]^T (+ bias on every row)
inline void project(const Compute& compute, const ConstTensorView& x, const ConstTensorView& weight,
                    const TensorView& y, const ConstTensorView& bias = {}) {
  compute.ops.gemm(compute.stream, {.a = x, .b = weight, .c = y, .transpose_b = true, .bias = bias});
}

/// dx[T, in] = dy[T, out] W[out, in]
inline void project_backward(const Compute& compute, const ConstTensorView& dy, const ConstTensorView& weight,
                             const TensorView& dx) {
  compute.ops.gemm(compute.stream, {.a = dy, .b = weight, .c = dx});
}

/// dW[out, in] += dy[T, out]^T x[T, in]
inline void add_weight_gradient(const Compute& compute, const ConstTensorView& dy, const ConstTensorView& x,
                                const TensorView& dweight) {
  compute.ops.gemm(compute.stream, {.a = dy, .b = x, .c = dweight, .transpose_a = true, .accumulate = true});
}

}  // namespace skrull
