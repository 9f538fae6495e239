// Queues attention; its kernels check their operands.

#include <vector>

#include "cpu/attention.h"
#include "cpu/cpu_ops.h"

namespace skrull {

namespace {

/// The arguments with their segments, which the caller's span need not outlive.
template <class Attention>
class Owned {
 public:
  explicit Owned(const Attention& arguments)
      : segments_(arguments.segments.begin(), arguments.segments.end()), arguments_(arguments) {}

  Attention arguments() const {
    Attention result = arguments_;
    result.segments = segments_;
    return result;
  }

 private:
  std::vector<AttentionSegment> segments_;
  Attention arguments_;
};

}  // namespace

void CpuOps::attention_forward(Stream& stream, const AttentionForward& attention) {
  run(stream, [owned = Owned(attention)] { cpu_attention_forward(owned.arguments()); });
}

void CpuOps::attention_merge(Stream& stream, std::int64_t head_dim, ConstTensorView partial_out,
                             ConstTensorView partial_lse, TensorView out, TensorView lse) {
  run(stream, [=] { cpu_attention_merge(head_dim, partial_out, partial_lse, out, lse); });
}

void CpuOps::attention_delta(Stream& stream, std::int64_t head_dim, ConstTensorView out, ConstTensorView dout,
                             TensorView delta) {
  run(stream, [=] { cpu_attention_delta(head_dim, out, dout, delta); });
}

void CpuOps::attention_backward(Stream& stream, const AttentionBackward& attention) {
  run(stream, [owned = Owned(attention)] { cpu_attention_backward(owned.arguments()); });
}

}  // namespace skrull
