#include "skrull/model/transformer.h"

#include <cmath>

#include "golden_case.h"
#include "message.h"
#include "skrull/core/error.h"

using namespace skrull;
using test::contains_all;
using test::GoldenCase;
using test::LoadedModel;

namespace {

/// Blocks of two layers in the order of forward, then backward.
std::vector<int> order_of_blocks(const ParameterTable& table, bool backward) {
  std::vector<int> order = {0, 1, 2, table.final_norm_block(), table.head_block()};
  if (backward) order.insert(order.end(), {table.final_norm_block(), 2, 1});
  return order;
}

}  // namespace

TEST_CASE("blocks are acquired one at a time and become ready once, whatever the micro-batch holds") {
  for (const std::string& name : {std::string("tied_mha_d16"), std::string("untied_gqa4_d16")}) {
    for (const Recompute recompute : {Recompute::none, Recompute::selective, Recompute::full}) {
      const GoldenCase golden(name);
      MicroBatch unsupervised = golden.batch();
      std::fill(unsupervised.labels.begin(), unsupervised.labels.end(), ignored_label);
      LoadedModel model(golden.folder, {.max_tokens = golden.tokens, .recompute = recompute});
      const ParameterTable& table = model.model.parameters();
      for (const MicroBatch& batch : {golden.batch(), MicroBatch{}, unsupervised}) {
        test::CollectedGradients gradients(*model.device, table);
        model.attention.set_batch(batch);
        model.parameters->acquired.clear();
        const LossSums sums = model.model.forward_backward(batch, *model.parameters, model.attention, gradients).sums();
        CHECK(model.parameters->held == -1);
        CHECK(model.parameters->acquired == order_of_blocks(table, true));
        const bool tied = table.head_block() == 0;
        CHECK(gradients.ready_blocks == (tied ? std::vector<int>{3, 2, 1, 0} : std::vector<int>{4, 3, 2, 1, 0}));
        if (sums.supervised_tokens > 0) continue;
        CHECK(sums.loss == 0);
        CHECK(sums.weighted_loss == 0);
        for (const auto& [parameter, gradient] : gradients.by_name()) {
          INFO(parameter);
          CHECK(gradient == std::vector<float>(gradient.size(), 0.0F));
        }
      }
      model.parameters->acquired.clear();
      model.evaluate(golden.batch());
      CHECK(model.parameters->acquired == order_of_blocks(table, false));
    }
  }
}

TEST_CASE("an error inside a micro-batch leaves no block held") {
  struct FailingAttention : test::PlainAttention {
    using PlainAttention::PlainAttention;
    void forward(std::int64_t, ConstTensorView, ConstTensorView, ConstTensorView, TensorView, TensorView) override {
      throw RunFailure("the ring broke");
    }
  };
  const GoldenCase golden("tied_mha_d16");
  LoadedModel model(golden.folder, {.max_tokens = golden.tokens});
  FailingAttention failing(*model.device, model.config);
  CHECK(test::message_of<RunFailure>([&] { model.model.evaluate(golden.batch(), *model.parameters, failing); }) ==
        "the ring broke");
  CHECK(model.parameters->held == -1);
  model.evaluate(golden.batch());
}

TEST_CASE("the planned memory is what is allocated, and an inference model needs less") {
  const GoldenCase golden("untied_gqa4_d16");
  const Qwen2Config config = load_qwen2_config(golden.folder);
  std::int64_t inference_bytes = 0;
  for (const DType dtype : {DType::float32, DType::bfloat16}) {
    for (const Recompute recompute : {Recompute::none, Recompute::selective, Recompute::full}) {
      for (const bool training : {false, true}) {
        const TransformerOptions options = {
            .compute_dtype = dtype, .max_tokens = 37, .recompute = recompute, .training = training};
        const std::unique_ptr<Device> device = make_cpu_device();
        const Transformer model(config, options, *device);
        const std::int64_t bytes = device->memory().current_bytes();
        CHECK(bytes == Transformer::planned_bytes(config, options));
        if (!training) inference_bytes = bytes;
        CHECK((bytes > inference_bytes) == training);
      }
    }
  }
}

TEST_CASE("the memory of the 0.5B shape is what its parts add up to") {
  Qwen2Config config;
  config.vocab_size = 151936;
  config.hidden_size = 896;
  config.intermediate_size = 4864;
  config.num_layers = 24;
  config.num_heads = 14;
  config.num_kv_heads = 2;
  config.head_dim = 64;
  config.tie_word_embeddings = true;
  TransformerOptions options = {.max_tokens = 2048, .loss_chunk_tokens = 100};
  // Floats per token: a layer keeps input, middle (2 x 896), qkv 1152, attention 896, gate and up 9728, log-sum-exp 14,
  // two inverse norms; once: ids, positions, RoPE 64, output 896 + 1, scratch 2 x 896 + 4864, backward 896 + 896 + 4864
  // + 1152, head 4. A loss chunk's row: 2 x 896 + 151936. And 32 inverse frequencies.
  const std::int64_t layer = 2 * 896 + 1152 + 896 + 9728 + 14 + 2;
  const std::int64_t once = 2 + 64 + 897 + 2 * 896 + 4864 + 2 * 896 + 4864 + 1152 + 4;
  const std::int64_t chunk = 100 * (2 * 896 + 151936);
  CHECK(Transformer::planned_bytes(config, options) == 4 * (2048 * (24 * layer + once) + chunk + 32));
  options.recompute = Recompute::full;
  CHECK(Transformer::planned_bytes(config, options) == 4 * (2048 * (23 * 896 + layer + once) + chunk + 32));
  // Two normed inputs and the SwiGLU output of every layer; the first one's takes the place of the shared one.
  options.recompute = Recompute::none;
  CHECK(Transformer::planned_bytes(config, options) ==
        4 * (2048 * (24 * (layer + 2 * 896 + 4864) - 4864 + once) + chunk + 32));
}

TEST_CASE("an inference model computes the same and refuses a backward") {
  const GoldenCase golden("tied_gqa7_d64");
  LoadedModel training(golden.folder, {.max_tokens = golden.tokens});
  LoadedModel inference(golden.folder, {.max_tokens = golden.tokens, .training = false});
  CHECK(inference.logits(golden.batch()) == training.logits(golden.batch()));
  CHECK(inference.evaluate(golden.batch()).loss == training.evaluate(golden.batch()).loss);
  CHECK_THROWS_AS(inference.step(golden.batch()), RunFailure);
}

TEST_CASE("a micro-batch smaller than the largest leaves no trace of the one before") {
  const GoldenCase golden("untied_gqa2_d128");
  LoadedModel model(golden.folder, {.max_tokens = golden.tokens});
  const MicroBatch small = test::pack({golden.ids[1]}, {golden.labels[1]}, 1.0F);
  const test::StepResult before = model.step(small);
  model.step(golden.batch());
  const test::StepResult after = model.step(small);
  CHECK(after.sums.loss == before.sums.loss);
  CHECK(after.gradients == before.gradients);
}

TEST_CASE("logits come for the rows that are asked for, in their order") {
  const GoldenCase golden("untied_gqa4_d16");
  LoadedModel model(golden.folder, {.max_tokens = golden.tokens});
  const MicroBatch batch = golden.batch();
  const std::vector<float> all = model.logits(batch);
  const std::vector<float> some = model.logits(batch, {40, 3}, model.attention);
  const auto row = [&](std::int64_t index) {
    const auto begin = all.begin() + static_cast<std::ptrdiff_t>(index * model.config.vocab_size);
    return std::vector<float>(begin, begin + static_cast<std::ptrdiff_t>(model.config.vocab_size));
  };
  std::vector<float> expected = row(40);
  const std::vector<float> second = row(3);
  expected.insert(expected.end(), second.begin(), second.end());
  CHECK(test::relative_error(some, expected) < 1e-6);
  CHECK_THROWS_AS(model.logits(batch, {static_cast<std::int32_t>(golden.tokens)}, model.attention), RunFailure);
}

TEST_CASE("ids and labels outside the vocabulary are refused with their sample") {
  const GoldenCase golden("tied_mha_d16");
  LoadedModel model(golden.folder, {.max_tokens = golden.tokens});
  const auto refusal = [&](const MicroBatch& batch) {
    return test::message_of<InvalidInput>([&] { model.step(batch); });
  };
  MicroBatch batch = golden.batch();
  batch.ids[5] = 97;
  CHECK(contains_all(refusal(batch), {"sample 2, token 2", "97", "vocabulary of 97"}));
  batch = golden.batch();
  batch.ids[0] = -1;
  CHECK(contains_all(refusal(batch), {"sample 0, token 0", "-1"}));
  batch = golden.batch();
  batch.labels[2] = 100;
  CHECK(contains_all(refusal(batch), {"sample 1, token 1", "label 100"}));
  batch.labels[2] = -1;
  CHECK(contains_all(refusal(batch), {"label -1", "-100"}));
}

TEST_CASE("micro-batches that do not fit the model are refused") {
  const GoldenCase golden("tied_mha_d16");
  LoadedModel model(golden.folder, {.max_tokens = golden.tokens - 1});
  CHECK(contains_all(test::message_of<RunFailure>([&] { model.step(golden.batch()); }), {"53", "52"}));
  MicroBatch batch = test::pack({golden.ids[2]}, {golden.labels[2]}, 1.0F);
  batch.weights.pop_back();
  CHECK_THROWS_AS(model.step(batch), RunFailure);
}
