#include "ops/attention_engine.h"

#include <utility>

#include "device/cuda_stream.h"
#include "ops/native_attention.h"
#include "ops/row_alignment.h"
#include "skrull/device/attention_operands.h"

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

bool is_aligned(const ConstTensorView& rows) {
  return row_alignment(rows) >= 16;
}

template <class Call>
void run_by(AttentionEngine* preferred, AttentionEngine& native, Stream& stream, const Call& call) {
  AttentionEngine& engine = preferred != nullptr && preferred->obstacle(call).empty() ? *preferred : native;
  engine.run(stream, call);
}

/// What forward and backward say alike; `aligned` is of what both have.
template <class Attention>
CudnnRequest common_request(int compute_capability, const Attention& a) {
  return {.compute_capability = compute_capability,
          .dtype = a.q.dtype(),
          .out_dtype = a.out.dtype(),
          .head_dim = a.shape.head_dim,
          .whole_sequences = are_whole_sequences(a.segments),
          .aligned = is_aligned(a.q) && is_aligned(a.k) && is_aligned(a.v) && is_aligned(a.out)};
}

}  // namespace

std::unique_ptr<AttentionEngine> make_native_attention() {
  return std::make_unique<NativeAttention>();
}

AttentionEngines::AttentionEngines(PreferredAttention preferred)
    : preferred_(std::move(preferred)), native_(make_native_attention()) {}

void AttentionEngines::run(Stream& stream, const AttentionForward& attention) {
  run_by(preferred_.forward.get(), *native_, stream, attention);
}

void AttentionEngines::run(Stream& stream, const AttentionBackward& attention) {
  run_by(preferred_.backward.get(), *native_, stream, attention);
}

CudnnRequest cudnn_request(int compute_capability, const AttentionForward& attention) {
  return common_request(compute_capability, attention);
}

CudnnRequest cudnn_request(int compute_capability, bool deterministic, const AttentionBackward& attention) {
  CudnnRequest request = common_request(compute_capability, attention);
  request.aligned = request.aligned && is_aligned(attention.dout);
  request.backward = true;
  request.deterministic = deterministic;
  return request;
}

std::string_view cudnn_obstacle_of_gpu(int compute_capability) {
  const int major = compute_capability / 10;
  return major >= 8 && major <= 10 ? "" : "the GPU's compute capability is not 8, 9 or 10";
}

std::string_view cudnn_backward_obstacle_of_gpu(int compute_capability, bool deterministic) {
  const int major = compute_capability / 10;
  if (major == 8) return "cuDNN has no backward of packed sequences on compute capability 8";
  if (major == 9 && deterministic) return "cuDNN's sums on compute capability 9 have no fixed order in little memory";
  return cudnn_obstacle_of_gpu(compute_capability);
}

std::string_view cudnn_obstacle(const CudnnRequest& request) {
  constexpr std::int64_t largest_head = 128;
  const std::string_view of_gpu =
      request.backward ? cudnn_backward_obstacle_of_gpu(request.compute_capability, request.deterministic)
                       : cudnn_obstacle_of_gpu(request.compute_capability);
  if (!of_gpu.empty()) return of_gpu;
  if (!request.whole_sequences) return "a segment is a part of a sequence";
  if (request.dtype != DType::bfloat16) return "not bfloat16";
  if (request.out_dtype != DType::bfloat16) return "the result is in float32";
  if (request.head_dim % 8 != 0 || request.head_dim > largest_head) return "heads are not of a multiple of 8 up to 128";
  if (request.backward && request.head_dim % 16 != 0) return "the backward's heads are not of a multiple of 16";
  if (!request.aligned) return "rows are not aligned to 16 bytes";
  return "";
}

}  // namespace skrull
