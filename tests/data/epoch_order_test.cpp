#include "skrull/data/epoch_order.h"

#include <algorithm>
#include <numeric>
#include <set>
#include <vector>

#include "byte_encoder.h"
#include "support/catch.h"

using namespace skrull;

namespace {

using Samples = std::vector<std::int64_t>;

Samples all(std::int64_t count) {
  Samples samples(static_cast<std::size_t>(count));
  std::iota(samples.begin(), samples.end(), 0);
  return samples;
}

Samples sorted(Samples samples) {
  std::sort(samples.begin(), samples.end());
  return samples;
}

/// Lengths that neither rise nor fall with the sample.
std::int64_t mixed_length(std::int64_t sample) {
  return sample * 37 % 101 + 1;
}

}  // namespace

TEST_CASE("steps of an epoch and of a run") {
  CHECK(steps_per_epoch(1, 8) == 1);
  CHECK(steps_per_epoch(8, 8) == 1);
  CHECK(steps_per_epoch(9, 8) == 2);
  CHECK(total_steps(10, 3.0, -1) == 30);
  CHECK(total_steps(10, 0.25, -1) == 3);
  CHECK(total_steps(10, 1.1, -1) == 11);  // 1.1 * 10 is 11.000000000000002
  CHECK(total_steps(10, 0.01, 0) == 1);
  CHECK(total_steps(10, 3.0, 7) == 7);
  CHECK_THROWS_AS(total_steps(10, 1e18, -1), InvalidInput);
}

TEST_CASE("each epoch holds every sample exactly once, in any order, batches of the full size but the last") {
  for (const DataOrder order : {DataOrder::shuffled, DataOrder::sequential, DataOrder::sorted_batches}) {
    for (const std::int64_t samples : {1, 2, 7, 8, 9, 64, 101}) {
      for (const std::int64_t batch : {1, 3, 8, 200}) {
        EpochOrder epochs({samples, batch, order, 5, mixed_length});
        REQUIRE(epochs.steps_per_epoch() == (samples + batch - 1) / batch);
        for (std::int64_t epoch = 0; epoch < 3; ++epoch) {
          Samples seen;
          for (std::int64_t i = 0; i < epochs.steps_per_epoch(); ++i) {
            const Samples step = epochs.global_batch(epoch * epochs.steps_per_epoch() + i);
            const bool last = i + 1 == epochs.steps_per_epoch();
            CHECK(static_cast<std::int64_t>(step.size()) == (last ? samples - i * batch : batch));
            seen.insert(seen.end(), step.begin(), step.end());
          }
          CHECK(sorted(seen) == all(samples));
        }
      }
    }
  }
}

TEST_CASE("the shuffled order depends on seed and epoch and on nothing else") {
  const EpochOrderRequest request{50, 8, DataOrder::shuffled, 1, nullptr};
  EpochOrderRequest other_seed = request;
  other_seed.seed = 2;
  CHECK(epoch_order(request, 0) == epoch_order(request, 0));
  CHECK(epoch_order(request, 0) != epoch_order(request, 1));
  CHECK(epoch_order(request, 0) != epoch_order(other_seed, 0));
  CHECK(epoch_order(request, 0) != all(50));
  // Any step can be asked for at any time: resuming in the middle of epoch 1 sees what an uninterrupted run sees.
  EpochOrder straight(request);
  for (std::int64_t step = 0; step < 10; ++step) straight.global_batch(step);
  EpochOrder resumed(request);
  CHECK(resumed.global_batch(10) == straight.global_batch(10));
  CHECK(resumed.global_batch(3) == straight.global_batch(3));
}

TEST_CASE("a shuffle is fair") {
  // Over 3000 epochs each of 6 samples comes first about 500 times (standard deviation 20).
  std::vector<int> first(6);
  for (std::int64_t epoch = 0; epoch < 3000; ++epoch) {
    ++first[static_cast<std::size_t>(epoch_order({6, 2, DataOrder::shuffled, 9, nullptr}, epoch).front())];
  }
  for (const int count : first) CHECK(std::abs(count - 500) < 100);
}

TEST_CASE("the sequential order is that of the files") {
  CHECK(epoch_order({5, 2, DataOrder::sequential, 1, nullptr}, 3) == Samples{0, 1, 2, 3, 4});
}

TEST_CASE("sorted batches hold neighbours in length, in shuffled order") {
  constexpr std::int64_t samples = 101;
  constexpr std::int64_t batch = 8;
  std::set<std::int64_t> shortest_of_last;
  for (std::int64_t epoch = 0; epoch < 20; ++epoch) {
    const Samples order = epoch_order({samples, batch, DataOrder::sorted_batches, 3, mixed_length}, epoch);
    std::vector<std::pair<std::int64_t, std::int64_t>> ranges;
    for (std::int64_t begin = 0; begin < samples; begin += batch) {
      const std::int64_t end = std::min(begin + batch, samples);
      for (std::int64_t i = begin + 1; i < end; ++i) {
        CHECK(mixed_length(order[static_cast<std::size_t>(i - 1)]) <= mixed_length(order[static_cast<std::size_t>(i)]));
      }
      ranges.emplace_back(mixed_length(order[static_cast<std::size_t>(begin)]),
                          mixed_length(order[static_cast<std::size_t>(end - 1)]));
    }
    CHECK_FALSE(std::is_sorted(ranges.begin(), ranges.end()));
    shortest_of_last.insert(ranges.back().first);
    std::sort(ranges.begin(), ranges.end());
    for (std::size_t i = 1; i < ranges.size(); ++i) CHECK(ranges[i - 1].second <= ranges[i].first);
  }
  CHECK(shortest_of_last.size() > 5);  // not always the same end of the lengths
}

TEST_CASE("the validation split is disjoint, complete, and decided by the seed") {
  const SampleSplit split = split_samples(100, {0.05, 0}, 1);
  CHECK(split.eval.size() == 5);
  CHECK(split.train.size() == 95);
  Samples both = split.train;
  both.insert(both.end(), split.eval.begin(), split.eval.end());
  CHECK(sorted(both) == all(100));
  CHECK(std::is_sorted(split.train.begin(), split.train.end()));
  CHECK(split_samples(100, {0.05, 0}, 1).eval == split.eval);
  CHECK(split_samples(100, {0.05, 0}, 2).eval != split.eval);
  CHECK(split_samples(100, {0.0, 7}, 1).eval.size() == 7);
  CHECK(split_samples(10, {0.01, 0}, 1).eval.size() == 1);
  CHECK(split_samples(100, {0.07, 0}, 1).eval.size() == 7);  // 0.07 * 100 is 7.000000000000001
  CHECK(split_samples(3, {}, 1).train == all(3));
  CHECK_THROWS_AS(split_samples(5, {0.0, 5}, 1), InvalidInput);
  CHECK_THROWS_AS(split_samples(1, {0.5, 0}, 1), InvalidInput);
}
