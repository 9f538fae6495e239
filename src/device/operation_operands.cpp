#include "skrull/device/operation_operands.h"

#include <string_view>

#include "skrull/device/operands.h"

namespace skrull {

void check_bias_backward(const ConstTensorView& dy, const ConstTensorView& dbias) {
  check_computable("bias_backward", "dy", dy);
  check_shape("bias_backward", "dbias", dbias, 1, dy.cols());
  check_dtype("bias_backward", "dbias", dbias, DType::float32);
}

void check_embedding_backward(const ConstTensorView& ids, const ConstTensorView& dout, const ConstTensorView& dtable) {
  check_dtype("embedding_backward", "ids", ids, DType::int32);
  check_shape("embedding_backward", "ids", ids, 1, dout.rows());
  check_computable("embedding_backward", "dout", dout);
  check_dtype("embedding_backward", "dtable", dtable, DType::float32);
  check_shape("embedding_backward", "dtable", dtable, dtable.rows(), dout.cols());
}

void check_rms_norm_forward(const ConstTensorView& x, const ConstTensorView& delta, const ConstTensorView& weight,
                            const ConstTensorView& sum, const ConstTensorView& y, const ConstTensorView& inverse_rms) {
  check_computable("rms_norm_forward", "x", x);
  check_shape("rms_norm_forward", "weight", weight, 1, x.cols());
  check_shape("rms_norm_forward", "y", y, x.rows(), x.cols());
  check_shape("rms_norm_forward", "inverse_rms", inverse_rms, 1, x.rows());
  check_dtype("rms_norm_forward", "weight", weight, x.dtype());
  check_dtype("rms_norm_forward", "y", y, x.dtype());
  check_dtype("rms_norm_forward", "inverse_rms", inverse_rms, DType::float32);
  if (!delta) return;
  check_shape("rms_norm_forward", "delta", delta, x.rows(), x.cols());
  check_shape("rms_norm_forward", "sum", sum, x.rows(), x.cols());
  check_dtype("rms_norm_forward", "delta", delta, x.dtype());
  check_dtype("rms_norm_forward", "sum", sum, x.dtype());
}

void check_rms_norm_backward(const ConstTensorView& dy, const ConstTensorView& x, const ConstTensorView& weight,
                             const ConstTensorView& inverse_rms, const ConstTensorView& dx,
                             const ConstTensorView& dweight) {
  check_computable("rms_norm_backward", "x", x);
  check_shape("rms_norm_backward", "dy", dy, x.rows(), x.cols());
  check_shape("rms_norm_backward", "weight", weight, 1, x.cols());
  check_shape("rms_norm_backward", "inverse_rms", inverse_rms, 1, x.rows());
  check_shape("rms_norm_backward", "dx", dx, x.rows(), x.cols());
  check_shape("rms_norm_backward", "dweight", dweight, 1, x.cols());
  check_dtype("rms_norm_backward", "dy", dy, x.dtype());
  check_dtype("rms_norm_backward", "weight", weight, x.dtype());
  check_dtype("rms_norm_backward", "inverse_rms", inverse_rms, DType::float32);
  check_dtype("rms_norm_backward", "dx", dx, x.dtype());
  check_dtype("rms_norm_backward", "dweight", dweight, DType::float32);
}

void check_rope_table(const ConstTensorView& positions, const ConstTensorView& inverse_frequency,
                      const ConstTensorView& table) {
  const std::int64_t half = inverse_frequency.cols();
  check_dtype("rope_table", "positions", positions, DType::int32);
  check_shape("rope_table", "inverse_frequency", inverse_frequency, 1, half);
  check_dtype("rope_table", "inverse_frequency", inverse_frequency, DType::float32);
  check_dtype("rope_table", "table", table, DType::float32);
  check_shape("rope_table", "positions", positions, 1, table.rows());
  check_shape("rope_table", "table", table, table.rows(), 2 * half);
}

void check_rope(const ConstTensorView& x, const ConstTensorView& table, std::int64_t head_dim) {
  require(head_dim > 0 && head_dim % 2 == 0 && x.cols() % head_dim == 0,
          "rope: {} columns and head size {}, expected whole heads of an even size", x.cols(), head_dim);
  check_computable("rope", "x", x);
  check_shape("rope", "table", table, x.rows(), head_dim);
  check_dtype("rope", "table", table, DType::float32);
}

void check_swiglu_forward(const ConstTensorView& gate_up, const ConstTensorView& y) {
  check_shape("swiglu_forward", "gate_up", gate_up, y.rows(), 2 * y.cols());
  check_computable("swiglu_forward", "y", y);
  check_dtype("swiglu_forward", "gate_up", gate_up, y.dtype());
}

void check_swiglu_backward(const ConstTensorView& gate_up, const ConstTensorView& dy, const ConstTensorView& dgate_up) {
  check_shape("swiglu_backward", "gate_up", gate_up, dy.rows(), 2 * dy.cols());
  check_shape("swiglu_backward", "dgate_up", dgate_up, dy.rows(), 2 * dy.cols());
  check_computable("swiglu_backward", "dy", dy);
  check_dtype("swiglu_backward", "gate_up", gate_up, dy.dtype());
  check_dtype("swiglu_backward", "dgate_up", dgate_up, dy.dtype());
}

void check_cross_entropy(const CrossEntropy& c) {
  const std::int64_t tokens = c.logits.rows();
  check_dtype("cross_entropy", "logits", c.logits, DType::float32);
  check_dtype("cross_entropy", "labels", c.labels, DType::int32);
  check_shape("cross_entropy", "labels", c.labels, 1, tokens);
  check_dtype("cross_entropy", "losses", c.losses, DType::float32);
  check_shape("cross_entropy", "losses", c.losses, 1, tokens);
  if (!c.gradient) return;
  check_dtype("cross_entropy", "weights", c.weights, DType::float32);
  check_shape("cross_entropy", "weights", c.weights, 1, tokens);
  check_computable("cross_entropy", "gradient", c.gradient);
  check_shape("cross_entropy", "gradient", c.gradient, tokens, c.logits.cols());
}

void check_adamw(const AdamW& a) {
  const std::int64_t count = a.parameter.cols();
  const auto check_vector = [count](std::string_view operand, const ConstTensorView& view) {
    check_dtype("adamw", operand, view, DType::float32);
    check_shape("adamw", operand, view, 1, count);
  };
  check_vector("parameter", a.parameter);
  check_vector("gradient", a.gradient);
  check_vector("first_moment", a.first_moment);
  check_vector("second_moment", a.second_moment);
  require(a.step >= 1, "adamw: step {}, expected 1 or more", a.step);
  if (!a.compute_copy) return;
  check_computable("adamw", "compute_copy", a.compute_copy);
  check_shape("adamw", "compute_copy", a.compute_copy, 1, count);
}

void check_sum_of_squares(const ConstTensorView& x, const ConstTensorView& result) {
  check_computable("sum_of_squares", "x", x);
  check_shape("sum_of_squares", "result", result, 1, 1);
  check_dtype("sum_of_squares", "result", result, DType::float64);
}

void check_cast(const ConstTensorView& source, const ConstTensorView& target) {
  check_shape("cast", "target", target, source.rows(), source.cols());
  if (source.dtype() == target.dtype()) return;
  check_computable("cast", "source", source);
  check_computable("cast", "target", target);
}

void check_add(const ConstTensorView& source, const ConstTensorView& target) {
  check_shape("add", "target", target, source.rows(), source.cols());
  check_computable("add", "source", source);
  check_computable("add", "target", target);
}

void check_scale(const ConstTensorView& x) {
  check_computable("scale", "x", x);
}

void check_gather_rows(const ConstTensorView& source, const ConstTensorView& rows, const ConstTensorView& target) {
  check_dtype("gather_rows", "rows", rows, DType::int32);
  check_shape("gather_rows", "rows", rows, 1, target.rows());
  check_shape("gather_rows", "target", target, target.rows(), source.cols());
  check_dtype("gather_rows", "target", target, source.dtype());
}

void check_scatter_rows(const ConstTensorView& source, const ConstTensorView& rows, const ConstTensorView& target) {
  check_dtype("scatter_rows", "rows", rows, DType::int32);
  check_shape("scatter_rows", "rows", rows, 1, source.rows());
  check_shape("scatter_rows", "target", target, target.rows(), source.cols());
  check_dtype("scatter_rows", "target", target, source.dtype());
}

}  // namespace skrull
