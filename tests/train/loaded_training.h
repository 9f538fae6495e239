#pragma once
// The parts of a training run on one rank, for tests that drive them step by step.

#include <utility>

#include "skrull/data/loader.h"
#include "skrull/parallel/local_attention.h"
#include "skrull/train/datasets.h"
#include "skrull/train/model_state.h"
#include "support/cost_model.h"
#include "training_fixture.h"

namespace skrull::test {

struct LoadedTraining {
  LoadedTraining(TrainConfig the_config, std::int64_t bucket_tokens, const std::filesystem::path& cache_folder)
      : config(std::move(the_config)),
        rank(config, MpiSession::alone()),
        state(config, rank, true),
        store(
            open_token_store(config.dataset, config, nullptr, state.config().vocab_size, cache_folder, rank.control())),
        model(state.config(), transformer_options(config, bucket_tokens, true), rank.device()),
        attention(attention_shape(state.config()), bucket_tokens, true, rank.device()) {}

  TrainConfig config;
  RankSession rank;
  ModelState state;
  std::shared_ptr<const TokenStore> store;
  Transformer model;
  LocalAttention attention;
};

/// These samples as one global batch of one rank.
inline StepBatches one_rank_step(const TokenStore& store, const std::vector<std::int64_t>& samples,
                                 std::int64_t bucket_tokens) {
  GlobalBatch batch = describe_batch(store, samples, LossWeighting::token_mean);
  Plan plan = make_plan("packed", {batch.lengths, Topology{}, bucket_tokens}, *small_cost_model());
  return {store, std::move(batch), std::move(plan), 0, 0};
}

}  // namespace skrull::test
