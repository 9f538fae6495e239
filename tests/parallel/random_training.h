#pragma once
// Training of a small model on random micro-batches, in which every replica and rank has other rings, or nothing to do.

#include <cstdint>
#include <functional>
#include <vector>

#include "parallel/small_model.h"
#include "ring_batches.h"
#include "skrull/comm/communicator.h"
#include "skrull/comm/rank_grid.h"
#include "skrull/device/device.h"
#include "skrull/model/transformer.h"
#include "skrull/parallel/micro_batch_attention.h"
#include "skrull/parallel/trainable_parameters.h"

namespace skrull::test {

/// Moments of a step, on the host.
enum class StepMoment { begins, micro_batches_queued, update_queued };

struct RandomTraining {
  std::int64_t layers = 3;
  int context_parallel = 1;
  Recompute recompute = Recompute::selective;
  TrainableParametersOptions parameters = {};
  std::function<void(StepMoment)> observer = {};
};

/// Of this rank.
struct Trained {
  std::vector<double> norms;  ///< of each step's gradients
  std::vector<float> state;   ///< parameters and first moments that it owns
};

/// What `rank` of a replica computes of a planned micro-batch, with tokens drawn by sequence and position, so that they
/// are the same wherever they are held.
inline MicroBatch filled(const PlannedBatch& planned, int rank, std::int64_t vocabulary) {
  MicroBatch batch = batch_of_rank(planned, rank);
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

/// Appends the values of a vector on the device.
inline void fetch(Device& device, ConstTensorView view, std::vector<float>& values) {
  const std::size_t before = values.size();
  values.resize(before + static_cast<std::size_t>(view.elements()));
  device.copy_to_host(device.compute_stream(), values.data() + before, view);
  device.compute_stream().synchronize();
}

/// Three steps on the ranks of `world`, which is over the memory of `device`.
inline Trained train_on_random_batches(Device& device, Communicator& world, const RandomTraining& training) {
  constexpr std::int64_t most_tokens = 200;
  const int context_parallel = training.context_parallel;
  const RankGrid grid = make_rank_grid(world.size(), world.rank(), context_parallel);
  const auto context = world.split(grid.data_rank, grid.context_rank);
  Qwen2Config config = small_config(false);
  config.num_layers = training.layers;
  config.max_position_embeddings = 256;
  const ParameterTable table(config);
  const auto parameters = make_trainable_parameters(table, training.parameters, device, world);
  parameters->set_values([&](const BlockOnHost& block) { initialize_parameters(3, 0.5, table, block); });
  Transformer model(config, {.max_tokens = most_tokens, .recompute = training.recompute, .loss_chunk_tokens = 16},
                    device);
  const auto attention =
      make_micro_batch_attention({attention_shape(config), DType::float32, most_tokens, true}, device, *context);
  const auto observe = [&](StepMoment moment) {
    if (training.observer) training.observer(moment);
  };
  Trained result;
  for (std::uint64_t step = 0; step < 3; ++step) {
    Rng rng(step, "micro-batches");
    const auto count = static_cast<std::int64_t>(1 + rng.below(5));
    std::vector<PendingLosses> losses;  // kept: to let go of one is to wait for it
    observe(StepMoment::begins);
    parameters->begin_step(count);
    for (std::int64_t i = 0; i < count; ++i) {
      const std::uint64_t seed =
          (step * 10 + static_cast<std::uint64_t>(i)) * 10 + static_cast<std::uint64_t>(grid.data_rank);
      const PlannedBatch planned = random_batch(seed, context_parallel, 4, 40);
      const bool empty = rng.below(4) == static_cast<std::uint64_t>(grid.data_rank);
      const MicroBatch batch = empty ? MicroBatch() : filled(planned, grid.context_rank, config.vocab_size);
      attention->begin(batch);
      losses.push_back(model.forward_backward(batch, *parameters, *attention, *parameters));
    }
    observe(StepMoment::micro_batches_queued);
    parameters->finish_gradients();
    result.norms.push_back(parameters->gradient_norm());
    parameters->update({.learning_rate = 0.01, .weight_decay = 0.1}, 1.0);
    observe(StepMoment::update_queued);
  }
  for (int block = 0; block < table.block_count(); ++block) {
    const OwnedState owned = parameters->owned(block);
    fetch(device, owned.parameter, result.state);
    fetch(device, owned.first_moment, result.state);
  }
  return result;
}

}  // namespace skrull::test
