#pragma once
// Who computes attention on a GPU: this project's own kernels, which can do all that Ops promises, or an engine that is
// preferred for what it can do.

#include <cstdint>
#include <memory>
#include <string_view>

#include "skrull/device/ops.h"

namespace skrull {

class AttentionEngine {
 public:
  virtual ~AttentionEngine() = default;
  /// For people.
  virtual std::string_view name() const = 0;
  /// Why this engine can't compute it; empty when it can.
  virtual std::string_view obstacle(const AttentionForward& attention) = 0;
  virtual std::string_view obstacle(const AttentionBackward& attention) = 0;
  /// Checks the operands and queues it. There is no obstacle.
  virtual void run(Stream& stream, const AttentionForward& attention) = 0;
  virtual void run(Stream& stream, const AttentionBackward& attention) = 0;
};

/// Can do everything.
std::unique_ptr<AttentionEngine> make_native_attention();

/// The engine that is preferred to the native one for each direction; null where none is.
struct PreferredAttention {
  std::shared_ptr<AttentionEngine> forward;
  std::shared_ptr<AttentionEngine> backward;
};

/// The engines of a device.
class AttentionEngines {
 public:
  explicit AttentionEngines(PreferredAttention preferred = {});

  /// By the preferred engine where it has no obstacle, else by the native one.
  void run(Stream& stream, const AttentionForward& attention);
  void run(Stream& stream, const AttentionBackward& attention);

 private:
  PreferredAttention preferred_;
  std::unique_ptr<AttentionEngine> native_;
};

/// What decides whether cuDNN can compute a forward, or a backward.
struct CudnnRequest {
  int compute_capability = 0;  ///< 10 x major + minor
  DType dtype = DType::bfloat16;
  DType out_dtype = DType::bfloat16;
  std::int64_t head_dim = 0;
  bool whole_sequences = false;  ///< every segment is causal, over the same rows of queries and keys
  bool aligned = false;          ///< all rows of q, k, v, out and dout start at multiples of 16 bytes
  bool backward = false;
  bool deterministic = false;  ///< of a backward: the same bits every time
};
CudnnRequest cudnn_request(int compute_capability, const AttentionForward& attention);
CudnnRequest cudnn_request(int compute_capability, bool deterministic, const AttentionBackward& attention);
/// Empty when cuDNN can.
std::string_view cudnn_obstacle(const CudnnRequest& request);

/// Likewise of GPUs: those that cuDNN takes packed sequences on.
std::string_view cudnn_obstacle_of_gpu(int compute_capability);
/// Of their backward.
std::string_view cudnn_backward_obstacle_of_gpu(int compute_capability, bool deterministic);

}  // namespace skrull
