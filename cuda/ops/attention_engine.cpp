#include "ops/attention_engine.h"

#include <algorithm>
#include <utility>

#include "device/cuda_stream.h"
#include "ops/native_attention.h"
#include "ops/row_alignment.h"

namespace skrull {
namespace {

class NativeAttention final : public AttentionEngine {
 public:
  std::string_view name() const override { return "native"; }
  std::string_view obstacle(const AttentionForward& /*attention*/) override { return ""; }
  std::string_view obstacle(const AttentionBackward& /*attention*/) override { return ""; }
  void run(Stream& stream, const AttentionForward& attention) override {
    attention::native_forward(cuda_stream(stream), attention);
  }
  void run(Stream& stream, const AttentionBackward& attention) override {
    attention::native_backward(cuda_stream(stream), attention);
  }
};

}  // namespace

std::unique_ptr<AttentionEngine> make_native_attention() {
  return std::make_unique<NativeAttention>();
}

AttentionEngines::AttentionEngines(std::unique_ptr<AttentionEngine> preferred)
    : preferred_(std::move(preferred)), native_(make_native_attention()) {}

template <class Call>
AttentionEngine& AttentionEngines::engine_for(const Call& call) {
  return preferred_ && preferred_->obstacle(call).empty() ? *preferred_ : *native_;
}

void AttentionEngines::run(Stream& stream, const AttentionForward& attention) {
  engine_for(attention).run(stream, attention);
}

void AttentionEngines::run(Stream& stream, const AttentionBackward& attention) {
  engine_for(attention).run(stream, attention);
}

CudnnRequest cudnn_request(int compute_capability, const AttentionForward& a) {
  const auto whole = [](const AttentionSegment& s) { return s.causal && s.q_begin == s.k_begin && s.q_len == s.k_len; };
  const auto aligned = [](const ConstTensorView& rows) { return row_alignment(rows) >= 16; };
  return {.compute_capability = compute_capability,
          .dtype = a.q.dtype(),
          .out_dtype = a.out.dtype(),
          .head_dim = a.shape.head_dim,
          .whole_sequences = std::all_of(a.segments.begin(), a.segments.end(), whole),
          .aligned = aligned(a.q) && aligned(a.k) && aligned(a.v) && aligned(a.out)};
}

bool cudnn_takes(int compute_capability) {
  const int major = compute_capability / 10;
  return major == 9 || major == 10;
}

std::string_view cudnn_obstacle(const CudnnRequest& request) {
  constexpr std::int64_t largest_head = 128;
  if (!cudnn_takes(request.compute_capability)) return "the GPU's compute capability is not 9 or 10";
  if (!request.whole_sequences) return "a segment is a part of a sequence";
  if (request.dtype != DType::bfloat16) return "not bfloat16";
  if (request.out_dtype != DType::bfloat16) return "the result is asked for in float32";
  if (request.head_dim % 8 != 0 || request.head_dim > largest_head) return "heads are not of a multiple of 8 up to 128";
  if (!request.aligned) return "rows are not aligned to 16 bytes";
  return "";
}

}  // namespace skrull
