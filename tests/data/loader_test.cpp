#include "skrull/data/loader.h"

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "store_fixture.h"
#include "support/catch.h"
#include "support/cost_model.h"

using namespace skrull;
using test::contains;
using test::invalid_input_of;
using test::StoreFixture;
using test::to_vector;

namespace {

using Lengths = std::vector<std::int64_t>;
const Lengths mixed{5, 17, 3, 40, 8, 2, 29, 11, 7, 23, 4, 31, 6};

LoaderOptions options_of(int data_parallel, std::int64_t batch, std::int64_t bucket = 40) {
  LoaderOptions options;
  options.topology.data_parallel = data_parallel;
  options.global_batch_size = batch;
  options.bucket_tokens = bucket;
  options.seed = 11;
  options.cost = test::small_cost_model();
  return options;
}

/// All micro-batches of one step of all ranks.
std::vector<MicroBatch> all_micro_batches(const TokenStore& store, LoaderOptions options, std::int64_t step) {
  std::vector<MicroBatch> all;
  std::int64_t count = -1;
  for (options.rank = 0; options.rank < options.topology.data_parallel; ++options.rank) {
    Loader loader(store, all_samples(store), options);
    const StepBatches batches = loader.step(step);
    if (count < 0) count = batches.micro_batch_count();
    CHECK(batches.micro_batch_count() == count);
    for (std::int64_t k = 0; k < count; ++k) all.push_back(batches.micro_batch(k));
  }
  return all;
}

}  // namespace

TEST_CASE("a micro-batch holds whole sequences back to back with positions from 0") {
  StoreFixture fixture;
  const TokenStore store = fixture.of_lengths({3, 2, 4});
  LoaderOptions options = options_of(1, 3);
  options.order = DataOrder::sequential;
  const MicroBatch packed = Loader(store, all_samples(store), options).step(0).micro_batch(0);
  constexpr std::int32_t X = ignored_label;
  CHECK(packed.ids == std::vector<std::int32_t>{0, 1, 2, 17, 18, 34, 35, 36, 37});
  CHECK(packed.positions == std::vector<std::int32_t>{0, 1, 2, 0, 1, 0, 1, 2, 3});
  CHECK(packed.labels == std::vector<std::int32_t>{1, 2, X, 18, X, 35, 36, 37, X});
  const float w = 1.0F / 6;  // N = 9 tokens - 3 documents
  CHECK(packed.weights == std::vector<float>{w, w, 0, w, 0, w, w, w, 0});
  REQUIRE(packed.local.size() == 3);
  CHECK(packed.local[1].begin == 3);
  CHECK(packed.local[1].length == 2);
  CHECK(packed.local[2].sample == 2);
  CHECK(packed.tokens() == 9);
}

TEST_CASE("N is the sum of lengths less one per document, whatever the layout") {
  StoreFixture fixture;
  const TokenStore store = fixture.of_lengths(mixed);
  for (const int data_parallel : {1, 2, 3, 8}) {
    for (const std::int64_t bucket : {40, 64, 1000}) {
      Loader loader(store, all_samples(store), options_of(data_parallel, 6, bucket));
      CHECK(loader.steps_per_epoch() == 3);
      Lengths seen;
      for (std::int64_t step = 0; step < 3; ++step) {
        const GlobalBatch batch = loader.global_batch(step);
        CHECK(batch.supervised == batch.tokens - static_cast<std::int64_t>(batch.samples.size()));
        double weight = 0;
        Lengths samples;
        for (const MicroBatch& part : all_micro_batches(store, options_of(data_parallel, 6, bucket), step)) {
          CHECK(part.tokens() <= bucket);
          for (const float w : part.weights) weight += w;
          for (const PackedSequence& sequence : part.local) samples.push_back(sequence.sample);
        }
        CHECK(weight == Approx(1.0).epsilon(1e-6));
        Lengths expected = batch.samples;
        std::sort(expected.begin(), expected.end());
        std::sort(samples.begin(), samples.end());
        CHECK(samples == expected);
        seen.insert(seen.end(), samples.begin(), samples.end());
      }
      std::sort(seen.begin(), seen.end());
      CHECK(seen == all_samples(store));  // each exactly once per epoch on any number of ranks
    }
  }
}

TEST_CASE("one sample and eight ranks: the others get empty micro-batches") {
  StoreFixture fixture;
  const TokenStore store = fixture.of_lengths({10});
  const auto parts = all_micro_batches(store, options_of(8, 4), 0);
  REQUIRE(parts.size() == 8);
  CHECK(std::count_if(parts.begin(), parts.end(), [](const MicroBatch& part) { return part.tokens() == 0; }) == 7);
}

TEST_CASE("the worked examples of token mean and sequence mean") {
  // Two sequences of 1 and 99 supervised tokens with mean losses 4 and 1.
  StoreFixture fixture;
  const TokenStore store = fixture.of_lengths({2, 100});
  const auto loss = [&](LossWeighting weighting) {
    const GlobalBatch batch = describe_batch(store, {0, 1}, weighting);
    return 4.0 * batch.token_weights[0] + 99 * 1.0 * batch.token_weights[1];
  };
  CHECK(loss(weighting_of(LossReduction::token_mean)) == Approx(1.03));
  CHECK(loss(weighting_of(LossReduction::sequence_mean)) == Approx(2.5));
  CHECK(loss(LossWeighting::sum) == Approx(103));
}

TEST_CASE("sequence mean weighs every sequence the same") {
  StoreFixture fixture;
  const TokenStore store = fixture.of_lengths(mixed);
  LoaderOptions options = options_of(2, 13);
  options.weighting = LossWeighting::sequence_mean;
  for (const MicroBatch& part : all_micro_batches(store, options, 0)) {
    for (const PackedSequence& sequence : part.local) {
      double weight = 0;
      for (std::int64_t i = 0; i < sequence.length; ++i) {
        weight += part.weights[static_cast<std::size_t>(sequence.begin + i)];
      }
      CHECK(weight == Approx(1.0 / 13).epsilon(1e-6));
    }
  }
}

TEST_CASE("a step can be replayed alone") {
  StoreFixture fixture;
  const TokenStore store = fixture.of_lengths(mixed);
  Loader straight(store, all_samples(store), options_of(2, 4));
  for (std::int64_t step = 0; step < 6; ++step) straight.global_batch(step);
  Loader fresh(store, all_samples(store), options_of(2, 4));
  const StepBatches a = straight.step(6);
  const StepBatches b = fresh.step(6);
  REQUIRE(a.micro_batch_count() == b.micro_batch_count());
  for (std::int64_t k = 0; k < a.micro_batch_count(); ++k) CHECK(a.micro_batch(k).ids == b.micro_batch(k).ids);
}

TEST_CASE("a loader of a split uses its samples alone") {
  StoreFixture fixture;
  const TokenStore store = fixture.of_lengths(mixed);
  const SampleSplit split = split_samples(store.size(), {0.0, 3}, 4);
  LoaderOptions options = options_of(1, 4);
  options.order = DataOrder::sorted_batches;
  Loader loader(store, split.train, options);
  CHECK(loader.sample_count() == 10);
  Lengths seen;
  for (std::int64_t step = 0; step < loader.steps_per_epoch(); ++step) {
    const GlobalBatch batch = loader.global_batch(step);
    CHECK(std::is_sorted(batch.lengths.begin(), batch.lengths.end()));
    seen.insert(seen.end(), batch.samples.begin(), batch.samples.end());
  }
  std::sort(seen.begin(), seen.end());
  CHECK(seen == split.train);
}

TEST_CASE("an evaluation sees every sample once, in order, on any number of ranks") {
  StoreFixture fixture;
  const TokenStore store = fixture.of_lengths(mixed);
  for (const int data_parallel : {1, 2, 5, 20}) {
    const LoaderOptions options = evaluation_options(options_of(data_parallel, 2), store, all_samples(store));
    Loader loader(store, all_samples(store), options);
    std::map<std::int64_t, int> seen;
    double weight = 0;
    for (std::int64_t step = 0; step < loader.steps_per_epoch(); ++step) {
      const GlobalBatch batch = loader.global_batch(step);
      CHECK(std::is_sorted(batch.samples.begin(), batch.samples.end()));
      for (const MicroBatch& part : all_micro_batches(store, options, step)) {
        for (const PackedSequence& sequence : part.local) ++seen[sequence.sample];
        for (const float w : part.weights) weight += w;
      }
    }
    CHECK(seen.size() == mixed.size());
    CHECK(std::all_of(seen.begin(), seen.end(), [](const auto& entry) { return entry.second == 1; }));
    CHECK(weight == 186 - 13);  // the sum of the lengths less one label per document
  }
  // Batches of about four buckets per rank: 4 x 40 tokens at a mean length of 14.3.
  CHECK(evaluation_options(options_of(1, 2), store, all_samples(store)).global_batch_size == 11);
  CHECK(evaluation_options(options_of(20, 2, 1), store, all_samples(store)).global_batch_size == 20);
}

TEST_CASE("samples larger than bucket_tokens are found before training") {
  StoreFixture fixture;
  const TokenStore store = fixture.of_lengths(mixed);
  CHECK(invalid_input_of([&] { check_bucket_tokens(store, all_samples(store), 40, 1); }) == "(nothing thrown)");
  const std::string message = invalid_input_of([&] { check_bucket_tokens(store, all_samples(store), 39, 1); });
  CHECK(contains(message,
                 "lengths.jsonl:4: the row has 40 tokens and does not fit into bucket_tokens 39: set "
                 "bucket_tokens to at least 40, or cutoff_len to at most 39"));
  CHECK(invalid_input_of([&] { check_bucket_tokens(store, {0, 1, 2}, 17, 1); }) == "(nothing thrown)");
  CHECK(invalid_input_of([&] { check_bucket_tokens(store, all_samples(store), 10, 4); }) == "(nothing thrown)");
  CHECK(contains(invalid_input_of([&] { check_bucket_tokens(store, all_samples(store), 9, 4); }),
                 "(10 on each context-parallel rank)"));
}

namespace {

/// A plan of one micro-batch for one replica of four ranks, in which rings overlap.
Plan overlapping_rings() {
  Plan plan;
  plan.policy = "by hand";
  plan.topology = {1, 4, 4};
  plan.bucket_tokens = 100;
  plan.lengths = {11, 3, 40, 8, 2};
  PlannedMicroBatch micro_batch;
  micro_batch.local = {{1}, {}, {}, {}};
  micro_batch.distributed = {{3, {0, 2, 3}}, {0, {0, 1, 2, 3}}, {2, {0, 2, 3}}, {4, {2, 3}}};
  plan.micro_batches = {{micro_batch}};
  return plan;
}

}  // namespace

TEST_CASE("a rank's shards come after its whole sequences, grouped by ring, with their true positions and labels") {
  StoreFixture fixture;
  const Plan plan = overlapping_rings();
  validate_plan(plan);
  const TokenStore store = fixture.of_lengths(plan.lengths);
  const GlobalBatch batch = describe_batch(store, all_samples(store), LossWeighting::token_mean);
  const MicroBatch rank_0 = assemble_micro_batch(store, batch, plan, 0, 0, 0);
  constexpr std::int32_t X = ignored_label;
  // Sequence 1 whole; of ring 0-2-3 sequences 3 (chunks 2 2 1 1 1 1) and 2 (7 7 7 7 6 6); of ring 0-1-2-3 sequence 0
  // (chunks 2 2 2 1 1 1 1 1).
  CHECK(rank_0.positions ==
        std::vector<std::int32_t>{0, 1, 2, 0, 1, 7, 0, 1, 2, 3, 4, 5, 6, 34, 35, 36, 37, 38, 39, 0, 1, 10});
  CHECK(std::vector<std::int32_t>(rank_0.labels.begin(), rank_0.labels.begin() + 6) ==
        std::vector<std::int32_t>{18, 19, X, 52, 53, X});
  CHECK(std::vector<std::int32_t>(rank_0.ids.begin() + 3, rank_0.ids.begin() + 6) ==
        std::vector<std::int32_t>{51, 52, 58});
  CHECK(rank_0.labels.at(12) == 34 + 7);  // the last token of a chunk has the first of the next one as its label
  CHECK(rank_0.weights.at(5) == 0);
  CHECK(rank_0.weights.at(4) == static_cast<float>(batch.token_weights.at(3)));
  REQUIRE(rank_0.local.size() == 1);
  REQUIRE(rank_0.rings.size() == 2);
  CHECK(rank_0.rings[0].ranks == std::vector<int>{0, 2, 3});
  CHECK(rank_0.rings[0].position == 0);
  REQUIRE(rank_0.rings[0].shards.size() == 2);
  CHECK(rank_0.rings[0].shards[1].begin == 6);
  CHECK(rank_0.rings[0].shards[1].length() == 13);
  CHECK(rank_0.rings[0].shards[1].sequence_length == 40);
  CHECK(rank_0.rings[0].shards[1].chunks[1].begin == 34);
  CHECK(rank_0.rings[1].ranks == std::vector<int>{0, 1, 2, 3});
  CHECK(rank_0.rings[1].shards[0].begin == 19);
  const MicroBatch rank_3 = assemble_micro_batch(store, batch, plan, 0, 3, 0);
  REQUIRE(rank_3.rings.size() == 3);
  CHECK(rank_3.rings[0].position == 2);
  CHECK(rank_3.rings[1].position == 3);
  CHECK(rank_3.rings[2].position == 1);
  // 2 tokens over 2 ranks: chunks 1 1 0 0.
  CHECK(rank_3.rings[2].shards[0].length() == 1);
}

TEST_CASE("under any policy the ranks together hold every token once") {
  StoreFixture fixture;
  const TokenStore store = fixture.of_lengths(mixed);
  for (const std::string policy : {"skrull", "packed", "packed-balanced", "deepspeed", "skrull-paper", "round-robin"}) {
    for (const auto& [data_parallel, context_parallel] : {std::pair{1, 2}, {1, 4}, {2, 3}}) {
      INFO(policy << " " << data_parallel << " x " << context_parallel);
      LoaderOptions options = options_of(data_parallel, static_cast<std::int64_t>(mixed.size()), 50);
      options.topology.context_parallel = context_parallel;
      options.policy = policy;
      options.order = DataOrder::sequential;
      std::map<std::pair<std::int64_t, std::int64_t>, int> seen;  // (sample, position)
      double weight = 0;
      std::int64_t micro_batches = -1;
      for (options.rank = 0; options.rank < data_parallel * context_parallel; ++options.rank) {
        const StepBatches step = Loader(store, all_samples(store), options).step(0);
        if (micro_batches < 0) micro_batches = step.micro_batch_count();
        CHECK(step.micro_batch_count() == micro_batches);
        for (std::int64_t i = 0; i < micro_batches; ++i) {
          const MicroBatch part = step.micro_batch(i);
          CHECK(part.tokens() <= 50);
          const auto add = [&](std::int64_t sample, std::int64_t begin, std::int64_t rows) {
            for (std::int64_t row = begin; row < begin + rows; ++row) {
              const auto at = static_cast<std::size_t>(row);
              const auto position = part.positions[at];
              ++seen[{sample, position}];
              weight += part.weights[at];
              const auto place = static_cast<std::size_t>(position);
              if (part.ids[at] != store.ids(sample)[place] || part.labels[at] != store.labels(sample)[place]) {
                FAIL("sample " << sample << ", token " << position);
              }
            }
          };
          for (const PackedSequence& sequence : part.local) add(sequence.sample, sequence.begin, sequence.length);
          for (const Ring& ring : part.rings) {
            for (const PackedShard& shard : ring.shards) add(shard.sample, shard.begin, shard.length());
          }
        }
      }
      CHECK(seen.size() == 186);  // the sum of the lengths
      CHECK(std::all_of(seen.begin(), seen.end(), [](const auto& entry) { return entry.second == 1; }));
      CHECK(weight == Approx(1.0).epsilon(1e-5));
    }
  }
}
