#include "skrull/schedule/memory_model.h"

#include "schedule_fixture.h"
#include "skrull/core/error.h"
#include "support/catch.h"

using namespace skrull;

namespace {

MemoryOptions options_of(int zero_stage, int world_size, Recompute recompute = Recompute::selective) {
  MemoryOptions options;
  options.zero_stage = zero_stage;
  options.world_size = world_size;
  options.recompute = recompute;
  options.tied_head = true;
  return options;
}

}  // namespace

TEST_CASE("parameters are counted with biases and norm weights") {
  CHECK(parameter_count(test::half_billion(), true) == 494032768);     // Qwen2.5-0.5B
  CHECK(parameter_count(test::seven_billion(), false) == 7615616512);  // Qwen2.5-7B
}

TEST_CASE("training state by ZeRO stage") {
  const std::int64_t p = 494032768;
  // Whole at a time: the embedding, two layers, the final norm.
  const std::int64_t layer = (p - 151936 * 896 - 896) / 24;
  const std::int64_t whole = 151936 * 896 + 2 * layer + 896;
  const auto fixed = [&](int stage) { return MemoryModel(test::half_billion(), options_of(stage, 8)).fixed(); };
  // bfloat16: 4 bytes of master weights and 2 to compute with, 4 of gradients, 8 of moments. All blocks divide by 8.
  CHECK(fixed(0).parameters == 6 * p);
  CHECK(fixed(0).gradients == 4 * p + 8);
  CHECK(fixed(0).optimizer_state == 8 * p);
  CHECK(fixed(1).parameters == 4 * p / 8 + 2 * p);
  CHECK(fixed(1).gradients == 4 * p + 8);
  CHECK(fixed(1).gradient_buffers == 0);
  CHECK(fixed(1).optimizer_state == 8 * p / 8);
  CHECK(fixed(2).gradients == 4 * p / 8 + 8);
  CHECK(fixed(2).gradient_buffers == 4 * whole);
  CHECK(fixed(2).gathered_parameters == 0);
  CHECK(fixed(3).parameters == 6 * p / 8);
  CHECK(fixed(3).gathered_parameters == 2 * whole);
  // In fp32 the master weights are part of what is computed with.
  MemoryOptions fp32 = options_of(0, 8);
  fp32.compute_dtype = DType::float32;
  CHECK(MemoryModel(test::half_billion(), fp32).fixed().parameters == 4 * p);
  fp32.zero_stage = 2;
  CHECK(MemoryModel(test::half_billion(), fp32).fixed().parameters == 4 * p);
  fp32.zero_stage = 3;
  CHECK(MemoryModel(test::half_billion(), fp32).fixed().parameters == 4 * p / 8);
  // One rank has nothing to divide.
  CHECK(MemoryModel(test::half_billion(), options_of(3, 1)).fixed().total() ==
        MemoryModel(test::half_billion(), options_of(0, 1)).fixed().total());
}

TEST_CASE("categories add up to the bytes of a rank") {
  for (const int stage : {0, 1, 2, 3}) {
    const MemoryModel model(test::half_billion(), options_of(stage, 3, Recompute::none));
    for (const std::int64_t tokens : {1, 300, 5000}) {
      std::int64_t total = 0;
      for (const MemoryCategory& category : model.by_category(tokens)) total += category.bytes;
      CHECK(total == model.bytes(tokens));
    }
  }
}

TEST_CASE("activations by hand for a model of round sizes") {
  // h 64, 2 layers, 4 heads over 2 of 16, f 128, V 512; bfloat16.
  const ModelShape small{64, 2, 4, 2, 16, 128, 512};
  const auto per_token = [&](Recompute recompute) {
    return MemoryModel(small, options_of(0, 1, recompute)).per_token();
  };
  const std::int64_t input = 2 * 64;
  // After attention, q k v, its output, gate and up; two inverse norms and 4 log-sum-exps in fp32.
  const std::int64_t rest = 2 * (64 + 128 + 64 + 256) + 4 * (2 + 4);
  // ids, positions, RoPE; output and its norm; scratch; delta of attention's backward.
  const std::int64_t once = 8 + 64 + 128 + 4 + 2 * (2 * 64 + 128) + 4 * 4;
  CHECK(per_token(Recompute::selective).activations == 2 * (input + rest) + once);
  CHECK(per_token(Recompute::full).activations == 2 * input + rest + once);
  CHECK(per_token(Recompute::none).activations == 2 * (input + rest + 2 * (2 * 64 + 128)) + once - 2 * 128);
  // dh, d of attention's output, of the MLP; q k v in fp32 and bfloat16.
  CHECK(per_token(Recompute::full).backward == 2 * (64 + 64 + 128) + 4 * 128 + 2 * 128);
  CHECK(per_token(Recompute::full).loss_head == 16);
  CHECK(per_token(Recompute::full).rings == 0);
  MemoryOptions ring = options_of(0, 8);
  ring.largest_ring = 8;
  // Own K and V, 64 numbers, and those of 7 hops; of 3 hops fp32 dK and dV of what arrived and from other ranks; the
  // output's fp32 sum; fp32 output and log-sum-exp of one hop.
  CHECK(MemoryModel(small, ring).per_token().rings == 8 * 64 * 2 + 2 * 3 * 64 * 4 + 64 * 4 + (64 + 4) * 4);
  ring.largest_ring = 2;
  CHECK(MemoryModel(small, ring).per_token().rings == 2 * 64 * 2 + 2 * 64 * 4 + 64 * 4 + (64 + 4) * 4);
}

TEST_CASE("the tokens that fit are the most that fit") {
  const MemoryModel model(test::half_billion(), options_of(2, 32));
  const std::int64_t memory = std::int64_t{77} << 30;
  const std::int64_t tokens = model.most_tokens(memory);
  CHECK(tokens > 26000);  // the paper's setting
  CHECK(model.bytes(tokens) <= memory - memory / 25);
  CHECK(model.bytes(tokens + 1) > memory - memory / 25);
  CHECK(MemoryModel(test::seven_billion(), options_of(0, 1)).most_tokens(memory) < 1);
  // Little memory: less than a chunk of logits fits, which then has as many rows as there are tokens.
  const std::int64_t little = std::int64_t{2500} << 20;
  const std::int64_t few = model.most_tokens(little);
  CHECK(few > 0);
  CHECK(few < default_loss_chunk_tokens(151936));
  CHECK(model.bytes(few) <= little - little / 25);
  CHECK(model.bytes(few + 1) > little - little / 25);
}

TEST_CASE("a chunk of logits takes about 256 MiB") {
  CHECK(default_loss_chunk_tokens(151936) == 441);
  CHECK(default_loss_chunk_tokens(std::int64_t{1} << 24) == 64);
}

TEST_CASE("ZeRO has stages 0 to 3") {
  CHECK_THROWS_AS(MemoryModel(test::half_billion(), options_of(4, 8)), RunFailure);
}
