#include "ops/cudnn_attention.h"

#include <cudnn_frontend.h>

#include <algorithm>
#include <array>
#include <bit>
#include <span>
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
using attention::CudnnBackwardKey;
using attention::CudnnForwardKey;
using attention::CudnnTensor;
using attention::SequenceGroup;
using attention::SequenceRows;
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

/// A tensor of a call. cuDNN takes no pointer to constant memory; it reads what is an input.
struct Operand {
  Operand(CudnnTensor number, const ConstTensorView& view, bool gathered = false)
      : tensor(number), data(const_cast<void*>(view.data())), rows{view.row_stride(), gathered} {}
  CudnnTensor tensor;
  void* data;
  SequenceRows rows;
};

constexpr int forward_tensors = 5;
constexpr int backward_tensors = 9;

/// What forward and backward have in common; only the types of `lse` and `out` differ.
template <class Attention>
CudnnForwardKey forward_key(int compute_capability, const Attention& a, const SequenceGroup& group) {
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

/// The gradients of a group as cuDNN writes them, bf16 without gaps, one behind the other.
struct GatheredGradients {
  GatheredGradients(void* memory, const AttentionShape& shape, std::int64_t rows)
      : dq(memory, DType::bfloat16, rows, shape.num_heads * shape.head_dim),
        dk(behind(dq), DType::bfloat16, rows, shape.num_kv_heads * shape.head_dim),
        dv(behind(dk), DType::bfloat16, rows, shape.num_kv_heads * shape.head_dim) {}

  static std::int64_t bytes(const AttentionShape& shape, std::int64_t rows) {
    const std::int64_t width = (shape.num_heads + 2 * shape.num_kv_heads) * shape.head_dim;
    constexpr std::int64_t alignment = 256;  // of what lies behind
    return (rows * width * size_of(DType::bfloat16) + alignment - 1) / alignment * alignment;
  }

  TensorView dq, dk, dv;

 private:
  /// Rows of heads of a multiple of 8 keep the alignment of 16 bytes.
  static void* behind(const TensorView& view) { return view.as<bfloat16>() + view.elements(); }
};

class CudnnAttention final : public AttentionEngine {
 public:
  CudnnAttention(CudaScratch& scratch, CudaScratch& backward_scratch, const CudnnOptions& options)
      : scratch_(scratch), backward_scratch_(backward_scratch), options_(options) {}

  std::string_view name() const override { return "cuDNN"; }

  std::string_view obstacle(const AttentionForward& attention) override {
    return obstacle(attention, cudnn_obstacle(cudnn_request(options_.compute_capability, attention)));
  }
  std::string_view obstacle(const AttentionBackward& attention) override {
    return obstacle(attention,
                    cudnn_obstacle(cudnn_request(options_.compute_capability, options_.deterministic, attention)));
  }

  void run(Stream& stream, const AttentionForward& attention) override {
    check_attention_forward(attention);
    run_groups(stream, attention);
  }
  void run(Stream& stream, const AttentionBackward& attention) override {
    check_attention_backward(attention);
    run_groups(stream, attention);
  }

 private:
  struct Plan {
    std::shared_ptr<fe::graph::Graph> graph;  ///< null where cuDNN has none
    std::int64_t workspace_bytes = 0;
  };

  static std::vector<SequenceGroup> groups_of(const AttentionForward& a) {
    return attention::group_sequences(a.segments);
  }
  /// As many rows at a time as there is memory for, by what such plans work in: three fp32 gradients of the queries and
  /// a number per head (tests/gates), beside the gradients themselves.
  std::vector<SequenceGroup> groups_of(const AttentionBackward& a) const {
    const std::int64_t row_bytes =
        GatheredGradients::bytes(a.shape, 1) + a.shape.num_heads * (3 * a.shape.head_dim + 1) * size_of(DType::float32);
    const auto rows = static_cast<std::uint64_t>(backward_scratch_.capacity() / row_bytes);
    return attention::group_sequences(a.segments, static_cast<std::int64_t>(std::bit_floor(rows)));
  }

  template <class Attention>
  std::string_view obstacle(const Attention& attention, std::string_view rule) {
    if (!rule.empty()) return rule;
    for (const SequenceGroup& group : groups_of(attention)) {
      if (!plan_of(attention, group).graph) return "cuDNN has no plan for it";
    }
    return "";
  }

  template <class Attention>
  void run_groups(Stream& stream, const Attention& attention) {
    check_cudnn(fe::detail::set_stream(handle_.get(), cuda_stream(stream)), "cudnnSetStream");
    for (const SequenceGroup& group : groups_of(attention)) {
      const Plan& plan = plan_of(attention, group);
      require(plan.graph != nullptr, "attention: cuDNN has no plan for {} sequences of up to {} tokens", group.slots,
              group.length);
      run(stream, attention, group, plan);
    }
  }

  const Plan& plan_of(const AttentionForward& attention, const SequenceGroup& group) {
    const CudnnForwardKey key = forward_key(options_.compute_capability, attention, group);
    return forward_plans_.get(key, [&] {
      return make_plan(attention::cudnn_forward_graph(key), "attention", group,
                       scratch_.capacity() - SequenceTables::bytes(group, forward_tensors));
    });
  }
  const Plan& plan_of(const AttentionBackward& attention, const SequenceGroup& group) {
    const CudnnBackwardKey key = {
        .forward = forward_key(options_.compute_capability, attention, group),
        .dout_stride = attention.dout.row_stride(),
        .rows = static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(group.rows))),
        .deterministic = options_.deterministic};
    return backward_plans_.get(key, [&] {
      return make_plan(attention::cudnn_backward_graph(key), "attention's backward", group,
                       backward_scratch_.capacity() - SequenceTables::bytes(group, backward_tensors) -
                           GatheredGradients::bytes(attention.shape, key.rows));
    });
  }

  Plan make_plan(std::shared_ptr<fe::graph::Graph> graph, std::string_view what, const SequenceGroup& group,
                 std::int64_t most_workspace_bytes) const {
    fe::error_t error = graph->build(handle_.get(), {fe::HeurMode_t::A});
    std::string problem = error.is_bad() ? error.get_message() : "";
    if (problem.empty()) {
      const std::int64_t bytes = graph->get_workspace_size();
      if (bytes <= most_workspace_bytes) return {std::move(graph), bytes};
      problem = fmt::format("its plan works in {} bytes, there are {}", bytes, most_workspace_bytes);
    }
    log::warning("{} of {} sequences of up to {} tokens runs on the program's own kernels, not on cuDNN: {}", what,
                 group.slots, group.length, problem);
    return {};
  }

  void run(Stream& stream, const AttentionForward& a, const SequenceGroup& group, const Plan& plan) {
    using namespace attention;
    const std::int64_t table_bytes = SequenceTables::bytes(group, forward_tensors);
    auto* memory = static_cast<char*>(scratch_.get(stream, table_bytes + plan.workspace_bytes));
    execute(stream, group, plan, memory,
            std::array<Operand, forward_tensors>{Operand(tensor_q, a.q), Operand(tensor_k, a.k), Operand(tensor_v, a.v),
                                                 Operand(tensor_out, a.out), Operand(tensor_lse, a.lse)});
  }

  void run(Stream& stream, const AttentionBackward& a, const SequenceGroup& group, const Plan& plan) {
    using namespace attention;
    const std::int64_t gradient_bytes = GatheredGradients::bytes(a.shape, group.rows);
    const std::int64_t table_bytes = SequenceTables::bytes(group, backward_tensors);
    auto* memory =
        static_cast<char*>(backward_scratch_.get(stream, gradient_bytes + table_bytes + plan.workspace_bytes));
    const GatheredGradients gradients(memory, a.shape, group.rows);
    execute(stream, group, plan, memory + gradient_bytes,
            std::array<Operand, backward_tensors>{
                Operand(tensor_q, a.q), Operand(tensor_k, a.k), Operand(tensor_v, a.v), Operand(tensor_out, a.out),
                Operand(tensor_lse, a.lse), Operand(tensor_dout, a.dout), Operand(tensor_dq, gradients.dq, true),
                Operand(tensor_dk, gradients.dk, true), Operand(tensor_dv, gradients.dv, true)});
    for (const auto& [gathered, target] :
         {std::pair{gradients.dq, a.dq}, std::pair{gradients.dk, a.dk}, std::pair{gradients.dv, a.dv}}) {
      add_gathered(cuda_stream(stream), group, gathered, target);
    }
  }

  /// `memory` holds the tables and the plan's workspace.
  template <std::size_t count>
  void execute(Stream& stream, const SequenceGroup& group, const Plan& plan, char* memory,
               const std::array<Operand, count>& operands) {
    const SequenceTables tables(memory, group, count);
    std::array<SequenceRows, count> rows;
    std::unordered_map<std::int64_t, void*> pack = {{attention::lengths, tables.lengths()}};
    for (std::size_t i = 0; i < count; ++i) {
      const Operand& operand = operands[i];
      rows[i] = operand.rows;
      pack[operand.tensor] = operand.data;
      pack[attention::offsets_of(operand.tensor)] = tables.offsets(static_cast<int>(i));
    }
    tables.fill(cuda_stream(stream), group, rows);
    check_cudnn(plan.graph->execute(handle_.get(), pack, memory + SequenceTables::bytes(group, count)), "attention");
  }

  CudaScratch& scratch_;
  CudaScratch& backward_scratch_;
  CudnnOptions options_;
  CudnnHandle handle_;
  RecentlyUsed<CudnnForwardKey, Plan> forward_plans_{kept_plans};
  RecentlyUsed<CudnnBackwardKey, Plan> backward_plans_{kept_plans};
};

}  // namespace

std::string cudnn_problem() {
  return attention::cudnn_library_problem();
}

std::unique_ptr<AttentionEngine> make_cudnn_attention(CudaScratch& scratch, CudaScratch& backward_scratch,
                                                      const CudnnOptions& options) {
  require(cudnn_problem().empty(), "{}", cudnn_problem());
  return std::make_unique<CudnnAttention>(scratch, backward_scratch, options);
}

}  // namespace skrull
