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

TEST_CASE("sharded sequences are refused until they can be computed") {
  StoreFixture fixture;
  const TokenStore store = fixture.of_lengths(mixed);
  LoaderOptions options = options_of(1, 2);
  options.topology.context_parallel = 2;
  options.policy = "packed";  // shards every sequence
  CHECK_THROWS_AS(Loader(store, all_samples(store), options).step(0).micro_batch(0), RunFailure);
}
