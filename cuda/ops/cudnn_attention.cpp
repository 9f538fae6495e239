#include "ops/cudnn_attention.h"

#include <cudnn_frontend.h>

#include <array>
#include <unordered_map>
#include <utility>
#include <vector>

#include "device/cuda_stream.h"
#include "ops/cudnn_graph.h"
#include "ops/sequence_tables.h"
#include "skrull/core/error.h"
#include "skrull/core/log.h"
#include "skrull/core/recently_used.h"
#include "skrull/device/attention_operands.h"

namespace skrull {
namespace {

namespace fe = cudnn_frontend;
using attention::CudnnForwardKey;
using attention::SequenceGroup;
using attention::SequenceTables;

constexpr std::size_t kept_plans = 256;

void check_cudnn(fe::error_t error, std::string_view call) {
  if (error.is_bad()) throw_run_failure("cuDNN: {} failed: {}", call, error.get_message());
}

void check_cudnn(cudnnStatus_t status, std::string_view call) {
  if (status == CUDNN_STATUS_SUCCESS) return;
  throw_run_failure("cuDNN: {} failed: {}", call, fe::detail::get_error_string(status));
}

class CudnnHandle {
 public:
  CudnnHandle() { check_cudnn(fe::detail::create_handle(&handle_), "cudnnCreate"); }
  ~CudnnHandle() { static_cast<void>(fe::detail::destroy_handle(handle_)); }
  CudnnHandle(const CudnnHandle&) = delete;
  CudnnHandle& operator=(const CudnnHandle&) = delete;
  cudnnHandle_t get() const { return handle_; }

 private:
  cudnnHandle_t handle_ = nullptr;
};

CudnnForwardKey key_of(int compute_capability, const AttentionForward& a, const SequenceGroup& group) {
  return {.compute_capability = compute_capability,
          .sequences = group.slots,
          .length = group.length,
          .num_heads = a.shape.num_heads,
          .num_kv_heads = a.shape.num_kv_heads,
          .head_dim = a.shape.head_dim,
          .q_stride = a.q.row_stride(),
          .k_stride = a.k.row_stride(),
          .v_stride = a.v.row_stride(),
          .out_stride = a.out.row_stride(),
          .lse_stride = a.lse.row_stride(),
          .scale = a.shape.scale};
}

/// cuDNN takes no pointer to constant memory; it reads what is an input.
void* address(const ConstTensorView& view) {
  return const_cast<void*>(view.data());
}

class CudnnAttention final : public AttentionEngine {
 public:
  CudnnAttention(CudaScratch& scratch, int compute_capability)
      : scratch_(scratch), compute_capability_(compute_capability) {}

  std::string_view name() const override { return "cuDNN"; }

  std::string_view obstacle(const AttentionForward& attention) override {
    const std::string_view rule = cudnn_obstacle(cudnn_request(compute_capability_, attention));
    if (!rule.empty()) return rule;
    for (const SequenceGroup& group : attention::group_sequences(attention.segments)) {
      if (!plan_of(attention, group).graph) return "cuDNN has no plan for it";
    }
    return "";
  }
  std::string_view obstacle(const AttentionBackward& /*attention*/) override {
    return "cuDNN's gradients are bfloat16";
  }

  void run(Stream& stream, const AttentionForward& attention) override {
    check_attention_forward(attention);
    check_cudnn(fe::detail::set_stream(handle_.get(), cuda_stream(stream)), "cudnnSetStream");
    for (const SequenceGroup& group : attention::group_sequences(attention.segments)) run(stream, attention, group);
  }
  void run(Stream& /*stream*/, const AttentionBackward& attention) override {
    throw_run_failure("attention: {}", obstacle(attention));
  }

 private:
  struct Plan {
    std::shared_ptr<fe::graph::Graph> graph;  ///< null where cuDNN has none
    std::int64_t workspace_bytes = 0;
  };

  Plan& plan_of(const AttentionForward& attention, const SequenceGroup& group) {
    const CudnnForwardKey key = key_of(compute_capability_, attention, group);
    return plans_.get(key, [&] { return make_plan(key, SequenceTables::bytes(group)); });
  }

  Plan make_plan(const CudnnForwardKey& key, std::int64_t table_bytes) {
    Plan plan{attention::cudnn_forward_graph(key)};
    fe::error_t error = plan.graph->build(handle_.get(), {fe::HeurMode_t::A});
    std::string problem = error.is_bad() ? error.get_message() : "";
    if (problem.empty()) {
      plan.workspace_bytes = plan.graph->get_workspace_size();
      if (table_bytes + plan.workspace_bytes <= scratch_.capacity()) return plan;
      problem = fmt::format("its plan works in {} bytes, there are {}", plan.workspace_bytes, scratch_.capacity());
    }
    log::warning("attention of {} sequences of up to {} tokens runs on the program's own kernels, not on cuDNN: {}",
                 key.sequences, key.length, problem);
    return {};
  }

  void run(Stream& stream, const AttentionForward& a, const SequenceGroup& group) {
    using namespace attention;
    Plan& plan = plan_of(a, group);
    require(plan.graph != nullptr, "attention: cuDNN has no plan for {} sequences of up to {} tokens", group.slots,
            group.length);
    const std::int64_t table_bytes = SequenceTables::bytes(group);
    auto* memory = static_cast<char*>(scratch_.get(stream, table_bytes + plan.workspace_bytes));
    const SequenceTables tables(memory, group);
    tables.fill(cuda_stream(stream), group,
                {a.q.row_stride(), a.k.row_stride(), a.v.row_stride(), a.out.row_stride(), a.lse.row_stride()});
    std::unordered_map<std::int64_t, void*> pack = {
        {tensor_q, address(a.q)},         {tensor_k, address(a.k)},       {tensor_v, address(a.v)},
        {tensor_out, a.out.data()},       {tensor_lse, a.lse.data()},     {offsets_q, tables.offsets(0)},
        {offsets_k, tables.offsets(1)},   {offsets_v, tables.offsets(2)}, {offsets_out, tables.offsets(3)},
        {offsets_lse, tables.offsets(4)}, {lengths, tables.lengths()}};
    check_cudnn(plan.graph->execute(handle_.get(), pack, memory + table_bytes), "attention");
  }

  CudaScratch& scratch_;
  int compute_capability_;
  CudnnHandle handle_;
  RecentlyUsed<CudnnForwardKey, Plan> plans_{kept_plans};
};

}  // namespace

std::string cudnn_problem() {
  return attention::cudnn_library_problem();
}

std::unique_ptr<AttentionEngine> make_cudnn_attention(CudaScratch& scratch, int compute_capability) {
  require(cudnn_problem().empty(), "{}", cudnn_problem());
  return std::make_unique<CudnnAttention>(scratch, compute_capability);
}

}  // namespace skrull
