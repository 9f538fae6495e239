#pragma once
// What every device asks of the operands of its operations (device/ops.h): throws RunFailure with the operand's name,
// what it is and what was expected. Those of products and attention are in gemm_sizes.h and attention_operands.h.

#include <cstdint>

#include "skrull/device/ops.h"

namespace skrull {

void check_bias_backward(const ConstTensorView& dy, const ConstTensorView& dbias);
void check_embedding_backward(const ConstTensorView& ids, const ConstTensorView& dout, const ConstTensorView& dtable);
void check_rms_norm_forward(const ConstTensorView& x, const ConstTensorView& delta, const ConstTensorView& weight,
                            const ConstTensorView& sum, const ConstTensorView& y, const ConstTensorView& inverse_rms);
void check_rms_norm_backward(const ConstTensorView& dy, const ConstTensorView& x, const ConstTensorView& weight,
                             const ConstTensorView& inverse_rms, const ConstTensorView& dx,
                             const ConstTensorView& dweight);
void check_rope_table(const ConstTensorView& positions, const ConstTensorView& inverse_frequency,
                      const ConstTensorView& table);
void check_rope(const ConstTensorView& x, const ConstTensorView& table, std::int64_t head_dim);
void check_swiglu_forward(const ConstTensorView& gate_up, const ConstTensorView& y);
void check_swiglu_backward(const ConstTensorView& gate_up, const ConstTensorView& dy, const ConstTensorView& dgate_up);
void check_cross_entropy(const CrossEntropy& cross_entropy);
void check_adamw(const AdamW& adamw);
void check_sum_of_squares(const ConstTensorView& x, const ConstTensorView& result);
void check_cast(const ConstTensorView& source, const ConstTensorView& target);
void check_add(const ConstTensorView& source, const ConstTensorView& target);
void check_scale(const ConstTensorView& x);
void check_gather_rows(const ConstTensorView& source, const ConstTensorView& rows, const ConstTensorView& target);
void check_scatter_rows(const ConstTensorView& source, const ConstTensorView& rows, const ConstTensorView& target);

}  // namespace skrull
