#include "ops/cudnn_graph.h"

#include <cudnn_frontend.h>
#include <dlfcn.h>
#include <spdlog/fmt/fmt.h>

namespace cudnn_frontend {
void* cudnn_dlhandle = nullptr;  // NOLINT: the frontend's name for the library it calls
}

namespace skrull::attention {
namespace {

namespace fe = cudnn_frontend;
using Tensor = std::shared_ptr<fe::graph::Tensor_attributes>;

/// The number of cuDNN 9.6, the first that takes offsets of the log-sum-exp.
constexpr std::size_t oldest_version = 90600;

std::string open_library() {
  void* library = dlopen("libcudnn.so.9", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return "libcudnn.so.9 was not found";
  fe::cudnn_dlhandle = library;
  const std::size_t version = fe::detail::get_backend_version();
  if (version >= oldest_version) return "";
  return fmt::format("libcudnn.so.9 has version {}, expected {} or newer", version, oldest_version);
}

/// A graph over packed sequences, and its tensors.
class PackedGraph {
 public:
  explicit PackedGraph(const CudnnForwardKey& key) : key_(key) {
    graph_
        ->set_sm_version(key.compute_capability)  // else the frontend opens a CUDA runtime of its own to ask
        .set_io_data_type(fe::DataType_t::BFLOAT16)
        .set_intermediate_data_type(fe::DataType_t::FLOAT)
        .set_compute_data_type(fe::DataType_t::FLOAT);
    q = input(tensor_q, queries(key.q_stride));
    k = input(tensor_k, keys(key.k_stride));
    v = input(tensor_v, keys(key.v_stride));
    rows = table(lengths, key.sequences, fe::DataType_t::INT32);
  }

  fe::graph::Graph& operator*() const { return *graph_; }
  std::shared_ptr<fe::graph::Graph> get() const { return graph_; }

  /// A row of memory is one position's heads behind each other.
  struct Row {
    std::int64_t heads, width, stride;
  };
  Row queries(std::int64_t stride) const { return {key_.num_heads, key_.head_dim, stride}; }
  Row keys(std::int64_t stride) const { return {key_.num_kv_heads, key_.head_dim, stride}; }
  Row statistics(std::int64_t stride) const { return {key_.num_heads, 1, stride}; }

  Tensor input(CudnnTensor number, const Row& row, fe::DataType_t type = fe::DataType_t::BFLOAT16) {
    fe::graph::Tensor_attributes tensor;
    describe(tensor, number, row, type);
    return graph_->tensor(tensor);
  }
  void output(const Tensor& tensor, CudnnTensor number, const Row& row,
              fe::DataType_t type = fe::DataType_t::BFLOAT16) {
    describe(*tensor, number, row, type);
    tensor->set_output(true);
  }

  /// What forward and backward say alike.
  template <class Attributes>
  Attributes causal(const char* name) const {
    return Attributes()
        .set_name(name)
        .set_attn_scale(key_.scale)
        .set_padding_mask(true)
        .set_seq_len_q(rows)
        .set_seq_len_kv(rows)
        .set_causal_mask(true);
  }

  Tensor q, k, v;
  Tensor rows;  ///< lengths

 private:
  /// `count` whole numbers.
  Tensor table(std::int64_t number, std::int64_t count, fe::DataType_t type) {
    return graph_->tensor(fe::graph::Tensor_attributes()
                              .set_uid(number)
                              .set_dim({count, 1, 1, 1})
                              .set_stride({1, 1, 1, 1})
                              .set_data_type(type));
  }

  /// Dimensions are sequences, heads, positions, elements. Where a sequence starts is in its offset, so the stride
  /// between sequences is never used.
  void describe(fe::graph::Tensor_attributes& tensor, CudnnTensor number, const Row& row, fe::DataType_t type) {
    tensor.set_uid(number)
        .set_dim({key_.sequences, row.heads, key_.length, row.width})
        .set_stride({key_.length * row.stride, row.width, row.stride, 1})
        .set_ragged_offset(table(offsets_of(number), key_.sequences + 1, fe::DataType_t::INT64))
        .set_data_type(type);
  }

  const CudnnForwardKey& key_;
  std::shared_ptr<fe::graph::Graph> graph_ = std::make_shared<fe::graph::Graph>();
};

}  // namespace

std::shared_ptr<fe::graph::Graph> cudnn_forward_graph(const CudnnForwardKey& key) {
  PackedGraph packed(key);
  auto [out, lse] = (*packed).sdpa(packed.q, packed.k, packed.v,
                                   packed.causal<fe::graph::SDPA_attributes>("attention").set_generate_stats(true));
  packed.output(out, tensor_out, packed.queries(key.out_stride));
  packed.output(lse, tensor_lse, packed.statistics(key.lse_stride), fe::DataType_t::FLOAT);
  return packed.get();
}

std::shared_ptr<fe::graph::Graph> cudnn_backward_graph(const CudnnBackwardKey& key) {
  const CudnnForwardKey& forward = key.forward;
  PackedGraph packed(forward);
  const Tensor out = packed.input(tensor_out, packed.queries(forward.out_stride));
  const Tensor dout = packed.input(tensor_dout, packed.queries(key.dout_stride));
  const Tensor lse = packed.input(tensor_lse, packed.statistics(forward.lse_stride), fe::DataType_t::FLOAT);
  auto [dq, dk, dv] = (*packed).sdpa_backward(packed.q, packed.k, packed.v, out, dout, lse,
                                              packed.causal<fe::graph::SDPA_backward_attributes>("attention backward")
                                                  .set_max_total_seq_len_q(key.rows)
                                                  .set_max_total_seq_len_kv(key.rows)
                                                  .set_deterministic_algorithm(key.deterministic));
  packed.output(dq, tensor_dq, packed.queries(forward.num_heads * forward.head_dim));
  packed.output(dk, tensor_dk, packed.keys(forward.num_kv_heads * forward.head_dim));
  packed.output(dv, tensor_dv, packed.keys(forward.num_kv_heads * forward.head_dim));
  return packed.get();
}

const std::string& cudnn_library_problem() {
  static const std::string problem = open_library();
  return problem;
}

}  // namespace skrull::attention
