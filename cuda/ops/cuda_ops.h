#pragma once
// The operations on a CUDA device. Each method checks its operands in the caller and queues its kernels on the stream;
// it is defined in the .cu file of its kind, kernels and launches together. Products are cuBLASLt's.

#include <cstdint>
#include <memory>

#include "ops/attention_engine.h"
#include "skrull/device/ops.h"

namespace skrull {

class CudaGemm;

/// Device memory that an operation may use until it is done: one piece for each stream, used in the stream's order.
class CudaScratch {
 public:
  virtual ~CudaScratch() = default;
  /// 256-byte aligned. Throws RunFailure when more than the stream's piece is asked for: operations divide their work
  /// so that `capacity()` is enough. What it held before is lost.
  virtual void* get(Stream& stream, std::int64_t bytes) = 0;
  virtual std::int64_t capacity() const = 0;
};

class CudaOps final : public Ops {
 public:
  /// `scratch` must outlive this. Without `gemm`, gemm() throws.
  CudaOps(CudaScratch& scratch, std::unique_ptr<CudaGemm> gemm, PreferredAttention preferred_attention = {});
  ~CudaOps() override;

  void gemm(Stream& stream, const Gemm& gemm) override;
  void bias_backward(Stream& stream, ConstTensorView dy, TensorView dbias) override;

  void embedding_forward(Stream& stream, ConstTensorView ids, ConstTensorView table, TensorView out) override;
  void embedding_backward(Stream& stream, ConstTensorView ids, ConstTensorView dout, TensorView dtable) override;

  void rms_norm_forward(Stream& stream, ConstTensorView x, ConstTensorView delta, ConstTensorView weight, float epsilon,
                        TensorView sum, TensorView y, TensorView inverse_rms) override;
  void rms_norm_backward(Stream& stream, ConstTensorView dy, ConstTensorView x, ConstTensorView weight,
                         ConstTensorView inverse_rms, TensorView dx, TensorView dweight) override;

  void rope_table(Stream& stream, ConstTensorView positions, ConstTensorView inverse_frequency,
                  TensorView table) override;
  void rope(Stream& stream, TensorView x, ConstTensorView table, std::int64_t head_dim, bool inverse) override;

  void attention_forward(Stream& stream, const AttentionForward& attention) override;
  void attention_merge(Stream& stream, std::int64_t head_dim, ConstTensorView partial_out, ConstTensorView partial_lse,
                       TensorView out, TensorView lse) override;
  void attention_delta(Stream& stream, std::int64_t head_dim, ConstTensorView out, ConstTensorView dout,
                       TensorView delta) override;
  void attention_backward(Stream& stream, const AttentionBackward& attention) override;

  void swiglu_forward(Stream& stream, ConstTensorView gate_up, TensorView y) override;
  void swiglu_backward(Stream& stream, ConstTensorView gate_up, ConstTensorView dy, TensorView dgate_up) override;

  void cross_entropy(Stream& stream, const CrossEntropy& cross_entropy) override;

  void adamw(Stream& stream, const AdamW& adamw) override;
  void sum_of_squares(Stream& stream, ConstTensorView x, TensorView result) override;

  void fill_zero(Stream& stream, TensorView x) override;
  void cast(Stream& stream, ConstTensorView source, TensorView target) override;
  void add(Stream& stream, ConstTensorView source, TensorView target) override;
  void scale(Stream& stream, float factor, TensorView x) override;
  void gather_rows(Stream& stream, ConstTensorView source, ConstTensorView rows, TensorView target) override;
  void scatter_rows(Stream& stream, ConstTensorView source, ConstTensorView rows, TensorView target) override;

 private:
  /// target = source of the same dtype, whatever it is.
  void copy_rows(Stream& stream, ConstTensorView source, TensorView target);

  CudaScratch& scratch_;
  std::unique_ptr<CudaGemm> gemm_;
  AttentionEngines attention_;
};

}  // namespace skrull
