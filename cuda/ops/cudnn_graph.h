#pragma once
// What cuDNN is asked for, as graphs of its frontend: attention over whole causal sequences that lie packed in rows,
// and its gradients.

#include <compare>
#include <cstdint>
#include <memory>
#include <string>

namespace cudnn_frontend::graph {
class Graph;
}

namespace skrull::attention {

/// What a graph, and the plan that computes it, are made for. Strides are between rows, in elements.
struct CudnnForwardKey {
  int compute_capability;  ///< 10 x major + minor
  std::int64_t sequences;  ///< as many as there can be
  std::int64_t length;     ///< of the longest one there can be
  std::int64_t num_heads, num_kv_heads, head_dim;
  std::int64_t q_stride, k_stride, v_stride, out_stride, lse_stride;
  float scale;
  auto operator<=>(const CudnnForwardKey&) const = default;  // NOLINT(modernize-use-nullptr): no pointer here
};

struct CudnnBackwardKey {
  CudnnForwardKey forward;
  std::int64_t dout_stride;
  std::int64_t rows;  ///< of all sequences, as many as there can be; head_dim is a multiple of 16 for it to count
  bool deterministic;
  auto operator<=>(const CudnnBackwardKey&) const = default;  // NOLINT(modernize-use-nullptr): no pointer here
};

/// The tensors of a graph by the numbers that cuDNN knows them by. `lengths` are int32, of each sequence. Rows of
/// gradients have no gaps between them.
enum CudnnTensor : std::int64_t {
  tensor_q = 1,
  tensor_k,
  tensor_v,
  tensor_out,
  tensor_lse,
  tensor_dout,
  tensor_dq,
  tensor_dk,
  tensor_dv,
  lengths
};
/// The number of a tensor's offsets: int64, in its elements, one for each sequence and one behind the last.
constexpr std::int64_t offsets_of(CudnnTensor tensor) {
  return lengths + tensor;
}

std::shared_ptr<cudnn_frontend::graph::Graph> cudnn_forward_graph(const CudnnForwardKey& key);
std::shared_ptr<cudnn_frontend::graph::Graph> cudnn_backward_graph(const CudnnBackwardKey& key);

/// Opens libcudnn for the frontend, once. Why that is impossible, for people; empty when it is open.
const std::string& cudnn_library_problem();

}  // namespace skrull::attention
