#include "device/cuda_stream.h"
#include "ops/cuda_ops.h"
#include "ops/native_attention.h"

namespace skrull {

void CudaOps::attention_forward(Stream& stream, const AttentionForward& attention) {
  attention_.run(stream, attention);
}

void CudaOps::attention_backward(Stream& stream, const AttentionBackward& attention) {
  attention_.run(stream, attention);
}

void CudaOps::attention_merge(Stream& stream, std::int64_t head_dim, ConstTensorView partial_out,
                              ConstTensorView partial_lse, TensorView out, TensorView lse) {
  attention::merge(cuda_stream(stream), head_dim, partial_out, partial_lse, out, lse);
}

void CudaOps::attention_delta(Stream& stream, std::int64_t head_dim, ConstTensorView out, ConstTensorView dout,
                              TensorView delta) {
  attention::delta(cuda_stream(stream), head_dim, out, dout, delta);
}

}  // namespace skrull
