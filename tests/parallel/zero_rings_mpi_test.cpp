// Sharded training state and ring attention on one communication stream: random micro-batches, in which every replica
// and rank has other rings, or nothing to do. Whatever order could make ranks wait in a circle would hang here, and
// ctest's time-out ends it.
#include <map>
#include <string>
#include <vector>

#include "parallel/small_model.h"
#include "ring_batches.h"
#include "skrull/comm/rank_grid.h"
#include "skrull/model/transformer.h"
#include "skrull/parallel/micro_batch_attention.h"
#include "skrull/parallel/trainable_parameters.h"
#include "support/catch.h"
#include "support/mpi.h"

using namespace skrull;

namespace {

constexpr std::int64_t most_tokens = 200;

Qwen2Config model_config() {
  Qwen2Config config = test::small_config(false);
  config.num_layers = 3;
  config.max_position_embeddings = 256;
  return config;
}

/// What `rank` of a replica computes of a planned micro-batch, with tokens drawn by sequence and position, so that they
/// are the same wherever they are held.
MicroBatch filled(const test::PlannedBatch& planned, int rank, std::int64_t vocabulary) {
  MicroBatch batch = test::batch_of_rank(planned, rank);
  const auto add = [&](std::int64_t sequence, std::int64_t begin, std::int64_t end) {
    for (std::int64_t position = begin; position < end; ++position) {
      batch.positions.push_back(static_cast<std::int32_t>(position));
      batch.labels.push_back(static_cast<std::int32_t>((7 * sequence + 3 * position + 1) % vocabulary));
      batch.weights.push_back(0.01F);
    }
  };
  for (const PackedSequence& sequence : batch.local) add(sequence.sample, 0, sequence.length);
  for (const Ring& ring : batch.rings) {
    for (const PackedShard& shard : ring.shards) {
      for (const TokenRange& chunk : shard.chunks) add(shard.sample, chunk.begin, chunk.end);
    }
  }
  for (std::size_t i = 0; i < batch.ids.size(); ++i) {
    batch.ids[i] = static_cast<std::int32_t>((5 * batch.ids[i] + 2 * batch.positions[i]) % vocabulary);
  }
  return batch;
}

struct Trained {
  std::vector<double> norms;
  std::string state;  // bits of what this rank owns
};

/// Three steps of random micro-batches on replicas of `context_parallel` ranks.
Trained train(int stage, int context_parallel, Recompute recompute) {
  const auto& session = test::mpi_session();
  const auto device = make_cpu_device(1);
  const auto world = session.world();
  const RankGrid grid = make_rank_grid(session.size(), session.rank(), context_parallel);
  const auto context = world->split(grid.data_rank, grid.context_rank);
  const Qwen2Config config = model_config();
  const ParameterTable table(config);
  const auto parameters = make_trainable_parameters(table, {.zero_stage = stage}, *device, *world);
  parameters->set_values([&](const BlockOnHost& block) { initialize_parameters(3, 0.5, table, block); });
  Transformer model(config, {.max_tokens = most_tokens, .recompute = recompute, .loss_chunk_tokens = 16}, *device);
  const auto attention =
      make_micro_batch_attention({attention_shape(config), DType::float32, most_tokens, true}, *device, *context);
  Trained result;
  for (std::uint64_t step = 0; step < 3; ++step) {
    Rng rng(step, "micro-batches");
    const auto count = static_cast<std::int64_t>(1 + rng.below(5));
    parameters->begin_step(count);
    for (std::int64_t i = 0; i < count; ++i) {
      const std::uint64_t seed =
          (step * 10 + static_cast<std::uint64_t>(i)) * 10 + static_cast<std::uint64_t>(grid.data_rank);
      const test::PlannedBatch planned = test::random_batch(seed, context_parallel, 4, 40);
      const bool empty = rng.below(4) == static_cast<std::uint64_t>(grid.data_rank);
      const MicroBatch batch = empty ? MicroBatch() : filled(planned, grid.context_rank, config.vocab_size);
      attention->begin(batch);
      model.forward_backward(batch, *parameters, *attention, *parameters);
    }
    parameters->finish_gradients();
    result.norms.push_back(parameters->gradient_norm());
    parameters->update({.learning_rate = 0.01, .weight_decay = 0.1}, 1.0);
  }
  for (int block = 0; block < table.block_count(); ++block) {
    const OwnedState owned = parameters->owned(block);
    for (const ConstTensorView view : {ConstTensorView(owned.parameter), ConstTensorView(owned.first_moment)}) {
      const auto* bytes = static_cast<const char*>(view.data());
      result.state.append(bytes, static_cast<std::size_t>(view.elements()) * sizeof(float));
    }
  }
  return result;
}

}  // namespace

TEST_CASE("rings and sharded state share the communication stream: no rank hangs, all stages agree bit by bit",
          "[zero]") {
  const int ranks = test::mpi_session().size();
  for (const int context_parallel : {1, 2, ranks}) {
    if (ranks % context_parallel != 0) continue;
    const Trained expected = train(0, context_parallel, Recompute::selective);
    CHECK(expected.norms.front() > 0);
    for (const int stage : {1, 2, 3}) {
      for (const Recompute recompute : {Recompute::none, Recompute::selective, Recompute::full}) {
        if (stage == 1 && recompute != Recompute::selective) continue;
        INFO("stage " << stage << ", context parallel " << context_parallel);
        const Trained actual = train(stage, context_parallel, recompute);
        CHECK(actual.norms == expected.norms);
        CHECK(actual.state == expected.state);
      }
    }
  }
}
