// The memory model of the scheduler against what the trainer plans and allocates.

#include "skrull/schedule/memory_model.h"

#include <memory>

#include "skrull/model/transformer.h"
#include "skrull/parallel/local_attention.h"
#include "skrull/parallel/ring_attention.h"
#include "skrull/parallel/trainable_parameters.h"
#include "skrull/train/step_benchmark.h"
#include "support/catch.h"

using namespace skrull;

namespace {

Qwen2Config small_model(bool tied) {
  Qwen2Config config;
  config.vocab_size = 2048;
  config.hidden_size = 128;
  config.intermediate_size = 512;
  config.num_layers = 3;
  config.num_heads = 8;
  config.num_kv_heads = 2;
  config.head_dim = 16;
  config.max_position_embeddings = 4096;
  config.tie_word_embeddings = tied;
  return config;
}

MemoryOptions memory_options(const Qwen2Config& config, const TransformerOptions& options) {
  MemoryOptions memory;
  memory.compute_dtype = options.compute_dtype;
  memory.recompute = options.recompute;
  memory.tied_head = config.tie_word_embeddings;
  memory.loss_chunk_tokens = options.loss_chunk_tokens;
  return memory;
}

/// What the trainer plans for this model on each of `context_parallel` ranks, without allocating.
std::int64_t planned_bytes(const Qwen2Config& config, const TransformerOptions& options, int context_parallel) {
  const ParameterStateBytes state = replicated_state_bytes(ParameterTable(config), {options.compute_dtype, true});
  const AttentionShape shape = attention_shape(config);
  const std::int64_t attention =
      context_parallel == 1
          ? LocalAttention::planned_bytes(shape, options.max_tokens, true)
          : RingAttention::planned_bytes({shape, options.compute_dtype, options.max_tokens, true}, context_parallel);
  return Transformer::planned_bytes(config, options) + attention + state.parameters + state.gradients +
         state.optimizer_state;
}

}  // namespace

TEST_CASE("the memory model is within 1% of what the trainer plans") {
  for (const Qwen2Config& config : {small_model(true), small_model(false), qwen25_half_billion()}) {
    for (const DType dtype : {DType::float32, DType::bfloat16}) {
      for (const Recompute recompute : {Recompute::selective, Recompute::full}) {
        for (const std::int64_t chunk : {0, 96}) {
          TransformerOptions options{dtype, 8192, recompute, chunk, true};
          for (const int context_parallel : {1, 2, 8}) {
            const auto planned = static_cast<double>(planned_bytes(config, options, context_parallel));
            MemoryOptions memory = memory_options(config, options);
            memory.largest_ring = context_parallel;
            const MemoryModel model(config.shape(), memory);
            INFO(config.hidden_size << " " << name_of(dtype) << " full " << (recompute == Recompute::full) << " CP "
                                    << context_parallel);
            CHECK(static_cast<double>(model.bytes(options.max_tokens)) == Approx(planned).epsilon(0.01));
          }
        }
      }
    }
  }
}

TEST_CASE("the memory model is within 10% of the ledger of a trainer that is set up") {
  const Qwen2Config config = small_model(true);
  const std::unique_ptr<Device> device = make_cpu_device(1);
  const std::unique_ptr<Communicator> self = make_self_communicator();
  const TransformerOptions options{DType::bfloat16, 1000, Recompute::selective, 128, true};
  const auto parameters =
      make_replicated_parameters(ParameterTable(config), {options.compute_dtype, true}, *device, *self);
  const Transformer transformer(config, options, *device);
  const LocalAttention attention(attention_shape(config), options.max_tokens, true, *device);
  const MemoryModel model(config.shape(), memory_options(config, options));
  CHECK(static_cast<double>(model.bytes(options.max_tokens)) ==
        Approx(static_cast<double>(device->memory().current_bytes())).epsilon(0.1));
}
