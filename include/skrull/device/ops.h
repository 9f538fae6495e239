#pragma once
// The numeric operations a device offers: everything the model, the loss and the optimizer compute.
//
// Common rules. Matrices are row-major, tokens x features. "compute dtype" is float32 or bfloat16, the same for all
// activations and weights of a call; sums are formed in fp32 or better. Gradients of parameters are fp32 and are ADDED
// to. Operations are queued on a stream and return at once (inline on the CPU). Results do not depend on thread timing.
// Views may have a row stride unless said otherwise. Shape or dtype mismatches throw RunFailure with the values.
// T = tokens, h = hidden size, d = head size, nq / nkv = query / key-value heads, f = MLP width, V = vocabulary.

#include <cstdint>
#include <span>

#include "skrull/core/tensor.h"
#include "skrull/device/stream.h"

namespace skrull {

/// C[m,n] = op(A) op(B) (+ C) (+ bias on every row). op is the transpose where asked. A and B have the compute dtype; C
/// the compute dtype or fp32. Sums in fp32.
struct Gemm {
  ConstTensorView a;
  ConstTensorView b;
  TensorView c;
  bool transpose_a = false;
  bool transpose_b = false;
  bool accumulate = false;    ///< add to what C holds
  ConstTensorView bias = {};  ///< 1 x n in the compute dtype, or empty
};

struct AttentionShape {
  std::int64_t num_heads = 0;
  std::int64_t num_kv_heads =
      0;  ///< divides num_heads; query head i uses key-value head i / (num_heads / num_kv_heads)
  std::int64_t head_dim = 0;
  float scale = 0;  ///< of the scores, 1 / sqrt(head_dim)
};

/// Query rows [q_begin, q_begin + q_len) look at key rows [k_begin, k_begin + k_len). Causal aligns the ends: query row
/// i of the segment sees key rows 0 .. i + k_len - q_len of it (none when negative).
struct AttentionSegment {
  std::int64_t q_begin = 0;
  std::int64_t q_len = 0;
  std::int64_t k_begin = 0;
  std::int64_t k_len = 0;
  bool causal = true;
};

struct AttentionForward {
  AttentionShape shape;
  std::span<const AttentionSegment> segments;  ///< each query row in at most one of them
  ConstTensorView q;                           ///< [Tq, nq d]
  ConstTensorView k;                           ///< [Tk, nkv d]
  ConstTensorView v;                           ///< [Tk, nkv d]
  TensorView out;                              ///< [Tq, nq d], compute dtype or fp32
  TensorView lse;  ///< [Tq, nq] fp32: log of the sum of exp(scale q.k), natural; -inf for a row without keys
};

/// Flash-attention backward with the GLOBAL result, log-sum-exp and delta, so that a partial segment (one ring hop)
/// adds its exact share: formed in fp32, it may be rounded to the compute dtype once before it is added.
struct AttentionBackward {
  AttentionShape shape;
  std::span<const AttentionSegment> segments;  ///< query rows and key rows each in at most one of them
  ConstTensorView q, k, v;
  ConstTensorView out;    ///< [Tq, nq d] compute dtype or fp32: what delta was formed of
  ConstTensorView dout;   ///< [Tq, nq d] compute dtype
  ConstTensorView lse;    ///< [Tq, nq] fp32
  ConstTensorView delta;  ///< [Tq, nq] fp32, from attention_delta()
  TensorView dq;          ///< [Tq, nq d] fp32, added to
  TensorView dk, dv;      ///< [Tk, nkv d] fp32, added to
};

/// Loss of the rows of one chunk: losses[t] = logsumexp(logits[t]) - logits[t, labels[t]] (0 where the label is
/// negative, i.e. not supervised). With a gradient view: gradient[t,:] = weights[t] (softmax(logits[t]) -
/// onehot(labels[t])), 0 for unsupervised rows.
struct CrossEntropy {
  TensorView logits;        ///< [t, V] fp32; overwritten when `gradient` is the same memory
  ConstTensorView labels;   ///< [1, t] int32
  ConstTensorView weights;  ///< [1, t] fp32
  TensorView losses;        ///< [1, t] fp32, unweighted
  TensorView gradient;      ///< [t, V] compute dtype, or empty; may be `logits` itself in fp32
};

/// Decoupled weight decay (Loshchilov, Hutter 2019), as torch.optim.AdamW: p -= lr wd p; m, v moments of g =
/// gradient_scale x gradient; p -= lr / (1 - beta1^step) m / (sqrt(v / (1 - beta2^step)) + epsilon). All vectors 1 x n,
/// contiguous.
struct AdamW {
  TensorView parameter;  ///< fp32 master
  ConstTensorView gradient;
  TensorView first_moment, second_moment;
  TensorView compute_copy;  ///< updated parameter in the compute dtype, or empty
  double learning_rate = 0;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  double weight_decay = 0;
  double gradient_scale = 1;  ///< clipping
  std::int64_t step = 1;      ///< from 1
};

class Ops {
 public:
  virtual ~Ops() = default;

  virtual void gemm(Stream& stream, const Gemm& gemm) = 0;
  /// dbias[1,n] fp32 += sum over rows of dy[T,n].
  virtual void bias_backward(Stream& stream, ConstTensorView dy, TensorView dbias) = 0;

  /// out[t,:] = table[ids[t],:]; ids [1,T] int32, checked against the table by the caller.
  virtual void embedding_forward(Stream& stream, ConstTensorView ids, ConstTensorView table, TensorView out) = 0;
  /// dtable[ids[t],:] fp32 += dout[t,:], in token order for every row.
  virtual void embedding_backward(Stream& stream, ConstTensorView ids, ConstTensorView dout, TensorView dtable) = 0;

  /// sum = x + delta (skipped when delta is empty: then sum is unused and x is normalised);
  /// y = sum * inverse_rms * weight, inverse_rms[1,T] fp32 = 1 / sqrt(mean(sum^2) + epsilon). `sum` may be `x`.
  virtual void rms_norm_forward(Stream& stream, ConstTensorView x, ConstTensorView delta, ConstTensorView weight,
                                float epsilon, TensorView sum, TensorView y, TensorView inverse_rms) = 0;
  /// x is the normalised input (the sum). dx[T,h] += its gradient; dweight[1,h] fp32 += its gradient.
  virtual void rms_norm_backward(Stream& stream, ConstTensorView dy, ConstTensorView x, ConstTensorView weight,
                                 ConstTensorView inverse_rms, TensorView dx, TensorView dweight) = 0;

  /// cos and sin of positions[t] * inverse_frequency[i]: table[T, d] fp32, first d/2 columns cos, then d/2 sin. Angles
  /// in fp64.
  virtual void rope_table(Stream& stream, ConstTensorView positions, ConstTensorView inverse_frequency,
                          TensorView table) = 0;
  /// Rotates each head of x[T, heads d] in place, halves paired (i, i + d/2) as in Hugging Face's Qwen2; `inverse`
  /// turns back (the gradient). x is compute dtype or fp32.
  virtual void rope(Stream& stream, TensorView x, ConstTensorView table, std::int64_t head_dim, bool inverse) = 0;

  virtual void attention_forward(Stream& stream, const AttentionForward& attention) = 0;
  /// Joins a partial result over other keys into (out, lse): both fp32 [T, nq d] / [T, nq]. Max-shifted, -inf harmless.
  virtual void attention_merge(Stream& stream, std::int64_t head_dim, ConstTensorView partial_out,
                               ConstTensorView partial_lse, TensorView out, TensorView lse) = 0;
  /// delta[T, nq] fp32 = sum over a head of out * dout.
  virtual void attention_delta(Stream& stream, std::int64_t head_dim, ConstTensorView out, ConstTensorView dout,
                               TensorView delta) = 0;
  virtual void attention_backward(Stream& stream, const AttentionBackward& attention) = 0;

  /// gate_up[T, 2f] holds gate then up: y[T,f] = silu(gate) * up.
  virtual void swiglu_forward(Stream& stream, ConstTensorView gate_up, TensorView y) = 0;
  /// dgate_up[T,2f] overwritten; may be gate_up itself.
  virtual void swiglu_backward(Stream& stream, ConstTensorView gate_up, ConstTensorView dy, TensorView dgate_up) = 0;

  virtual void cross_entropy(Stream& stream, const CrossEntropy& cross_entropy) = 0;

  virtual void adamw(Stream& stream, const AdamW& adamw) = 0;
  /// result[1,1] float64 += sum of x^2.
  virtual void sum_of_squares(Stream& stream, ConstTensorView x, TensorView result) = 0;

  virtual void fill_zero(Stream& stream, TensorView x) = 0;
  /// target = source, converted between float32 and bfloat16 (or copied, for equal dtypes of any kind).
  virtual void cast(Stream& stream, ConstTensorView source, TensorView target) = 0;
  /// target += source; float32 or bfloat16, both alike or source of the other kind.
  virtual void add(Stream& stream, ConstTensorView source, TensorView target) = 0;
  virtual void scale(Stream& stream, float factor, TensorView x) = 0;
  /// target[i,:] = source[rows[i],:]; rows [1,n] int32.
  virtual void gather_rows(Stream& stream, ConstTensorView source, ConstTensorView rows, TensorView target) = 0;
  /// target[rows[i],:] = source[i,:]; rows are distinct.
  virtual void scatter_rows(Stream& stream, ConstTensorView source, ConstTensorView rows, TensorView target) = 0;
};

}  // namespace skrull
