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

/// A table of whole numbers, `count` of them.
Tensor table(fe::graph::Graph& graph, CudnnTensor number, std::int64_t count, fe::DataType_t type) {
  return graph.tensor(fe::graph::Tensor_attributes()
                          .set_uid(number)
                          .set_dim({count, 1, 1, 1})
                          .set_stride({1, 1, 1, 1})
                          .set_data_type(type));
}

Tensor offsets(fe::graph::Graph& graph, CudnnTensor number, const CudnnForwardKey& key) {
  return table(graph, number, key.sequences + 1, fe::DataType_t::INT64);
}

/// Dimensions are sequences, heads, positions, elements; a row of memory is one position's heads behind each other.
/// Where a sequence starts is in its offset, so the stride between sequences is never used.
struct Packed {
  std::int64_t heads, width, stride;
};

void describe(fe::graph::Tensor_attributes& tensor, CudnnTensor number, const CudnnForwardKey& key,
              const Packed& packed, const Tensor& offsets) {
  tensor.set_uid(number)
      .set_dim({key.sequences, packed.heads, key.length, packed.width})
      .set_stride({key.length * packed.stride, packed.width, packed.stride, 1})
      .set_ragged_offset(offsets);
}

Tensor input(fe::graph::Graph& graph, CudnnTensor number, const CudnnForwardKey& key, const Packed& packed,
             CudnnTensor offset_number) {
  fe::graph::Tensor_attributes tensor;
  describe(tensor, number, key, packed, offsets(graph, offset_number, key));
  return graph.tensor(tensor);
}

void output(const Tensor& tensor, fe::graph::Graph& graph, CudnnTensor number, const CudnnForwardKey& key,
            const Packed& packed, CudnnTensor offset_number) {
  describe(*tensor, number, key, packed, offsets(graph, offset_number, key));
  tensor->set_output(true);
}

}  // namespace

std::shared_ptr<fe::graph::Graph> cudnn_forward_graph(const CudnnForwardKey& key) {
  auto graph = std::make_shared<fe::graph::Graph>();
  graph
      ->set_sm_version(key.compute_capability)  // else the frontend opens a CUDA runtime of its own to ask
      .set_io_data_type(fe::DataType_t::BFLOAT16)
      .set_intermediate_data_type(fe::DataType_t::FLOAT)
      .set_compute_data_type(fe::DataType_t::FLOAT);
  const Tensor q = input(*graph, tensor_q, key, {key.num_heads, key.head_dim, key.q_stride}, offsets_q);
  const Tensor k = input(*graph, tensor_k, key, {key.num_kv_heads, key.head_dim, key.k_stride}, offsets_k);
  const Tensor v = input(*graph, tensor_v, key, {key.num_kv_heads, key.head_dim, key.v_stride}, offsets_v);
  const Tensor rows = table(*graph, lengths, key.sequences, fe::DataType_t::INT32);
  auto [out, lse] = graph->sdpa(q, k, v,
                                fe::graph::SDPA_attributes()
                                    .set_name("attention")
                                    .set_generate_stats(true)
                                    .set_attn_scale(key.scale)
                                    .set_padding_mask(true)
                                    .set_seq_len_q(rows)
                                    .set_seq_len_kv(rows)
                                    .set_causal_mask(true));
  output(out, *graph, tensor_out, key, {key.num_heads, key.head_dim, key.out_stride}, offsets_out);
  output(lse, *graph, tensor_lse, key, {key.num_heads, 1, key.lse_stride}, offsets_lse);
  lse->set_data_type(fe::DataType_t::FLOAT);
  return graph;
}

const std::string& cudnn_library_problem() {
  static const std::string problem = open_library();
  return problem;
}

}  // namespace skrull::attention
