// The memory model of the scheduler against what the trainer plans and allocates.

#include "skrull/schedule/memory_model.h"

#include <map>
#include <memory>
#include <string>
#include <tuple>

#include "skrull/model/named_models.h"
#include "skrull/model/transformer.h"
#include "skrull/parallel/micro_batch_attention.h"
#include "skrull/parallel/ring_attention.h"
#include "skrull/parallel/trainable_parameters.h"
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

MemoryOptions options_of(const Qwen2Config& config, const TransformerOptions& options) {
  MemoryOptions memory;
  memory.compute_dtype = options.compute_dtype;
  memory.recompute = options.recompute;
  memory.tied_head = config.tie_word_embeddings;
  memory.loss_chunk_tokens = options.loss_chunk_tokens;
  return memory;
}

std::map<std::string, std::int64_t> predicted(const MemoryModel& model, std::int64_t tokens) {
  std::map<std::string, std::int64_t> categories;
  for (const MemoryCategory& category : model.by_category(tokens)) categories[category.name] = category.bytes;
  return categories;
}

/// A rank of several that answers for itself alone: enough to allocate with.
class LonelyRank final : public Communicator {
 public:
  LonelyRank(int rank, int size) : rank_(rank), size_(size) {}
  int rank() const override { return rank_; }
  int size() const override { return size_; }
  void all_reduce_sum(Stream&, TensorView) override {}
  void all_reduce_max(Stream&, TensorView) override {}
  void reduce_scatter_sum(Stream&, ConstTensorView, TensorView, std::span<const std::int64_t>) override {}
  void all_gather(Stream&, ConstTensorView, TensorView, std::span<const std::int64_t>) override {}
  void broadcast(Stream&, TensorView, int) override {}
  void exchange(Stream&, std::span<const Transfer>) override {}
  std::unique_ptr<Communicator> split(int, int) override { return nullptr; }

 private:
  int rank_;
  int size_;
};

}  // namespace

TEST_CASE("the memory model predicts every category of a trainer's memory, in bytes") {
  constexpr std::int64_t tokens = 500;
  for (const bool tied : {true, false}) {
    const Qwen2Config config = small_model(tied);
    const ParameterTable table(config);
    for (const DType dtype : {DType::float32, DType::bfloat16}) {
      for (const Recompute recompute : {Recompute::none, Recompute::selective, Recompute::full}) {
        for (const auto& [world, context_parallel, chunk] : {std::tuple{1, 1, 96}, {3, 1, 0}, {4, 2, 96}, {6, 3, 0}}) {
          for (const auto& [stage, on_host] :
               {std::pair{0, false}, {1, false}, {2, false}, {3, false}, {0, true}, {3, true}}) {
            INFO(name_of(dtype) << " " << name_of(recompute) << " " << world << " ranks, CP " << context_parallel
                                << ", stage " << stage << (on_host ? ", optimizer on the host" : ""));
            const TransformerOptions options{dtype, tokens, recompute, chunk, true};
            const std::unique_ptr<Device> device = make_cpu_device(1);
            LonelyRank all(0, world);
            LonelyRank context(0, context_parallel);
            const auto state = make_trainable_parameters(
                table, {.compute_dtype = dtype, .optimizer_on_host = on_host, .zero_stage = stage}, *device, all);
            const Transformer transformer(config, options, *device);
            const auto attention =
                make_micro_batch_attention({attention_shape(config), dtype, tokens, true}, *device, context);
            MemoryOptions memory = options_of(config, options);
            memory.zero_stage = stage;
            memory.optimizer_on_host = on_host;
            memory.world_size = world;
            memory.largest_ring = context_parallel;
            const MemoryModel model(config.shape(), memory);
            CHECK(predicted(model, tokens) == device->memory().by_category());
            CHECK(model.host_bytes() == device->host_memory().current_bytes());
          }
        }
      }
    }
  }
}

TEST_CASE("other ranks hold no more than the first, of which the memory model speaks") {
  const ParameterTable table(small_model(false));
  for (const int stage : {0, 1, 2, 3}) {
    const TrainableParametersOptions options{.zero_stage = stage};
    const auto first = training_state_bytes(table, options, 7, 0);
    for (int rank = 1; rank < 7; ++rank) {
      for (const auto& [category, bytes] : training_state_bytes(table, options, 7, rank)) {
        CHECK(bytes <= first.at(category));
        CHECK(bytes >= first.at(category) - 8 * table.block_count());
      }
    }
  }
}

TEST_CASE("the memory of 0.5B parameters over 8 ranks is predicted without allocating any") {
  const Qwen2Config config = find_model("0.5b");
  const TransformerOptions options{DType::bfloat16, 8192, Recompute::selective, 0, true};
  for (const int stage : {0, 1, 2, 3}) {
    MemoryOptions memory = options_of(config, options);
    memory.zero_stage = stage;
    memory.world_size = 8;
    memory.largest_ring = 8;
    std::int64_t planned =
        Transformer::planned_bytes(config, options) +
        RingAttention::planned_bytes({attention_shape(config), DType::bfloat16, options.max_tokens, true}, 8);
    for (const auto& [category, bytes] :
         training_state_bytes(ParameterTable(config), {.compute_dtype = DType::bfloat16, .zero_stage = stage}, 8, 0)) {
      planned += bytes;
    }
    CHECK(MemoryModel(config.shape(), memory).bytes(options.max_tokens) == planned);
  }
}
