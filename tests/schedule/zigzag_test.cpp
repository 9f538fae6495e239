#include <algorithm>
#include <vector>

#include "skrull/core/error.h"
#include "skrull/schedule/plan.h"
#include "support/catch.h"

using namespace skrull;

namespace {

/// By the definition: deal the tokens one by one to 2r chunks whose sizes differ by at most one, the first ones longer.
std::vector<std::int64_t> shards_by_counting(std::int64_t length, int ring_size) {
  std::vector<std::int64_t> chunks(2 * static_cast<std::size_t>(ring_size));
  for (std::int64_t token = 0; token < length; ++token) ++chunks[static_cast<std::size_t>(token) % chunks.size()];
  std::vector<std::int64_t> shards;
  for (std::size_t i = 0; i < chunks.size() / 2; ++i) shards.push_back(chunks[i] + chunks[chunks.size() - 1 - i]);
  return shards;
}

}  // namespace

TEST_CASE("zigzag shards are those of the definition for any length and ring size") {
  for (const int ring_size : {1, 2, 3, 5, 7, 8}) {
    for (std::int64_t length = 0; length < 70; ++length) {
      const auto expected = shards_by_counting(length, ring_size);
      std::vector<std::int64_t> shards;
      for (int i = 0; i < ring_size; ++i) shards.push_back(zigzag_shard_length(length, ring_size, i));
      CHECK(shards == expected);
      CHECK(largest_zigzag_shard(length, ring_size) == *std::max_element(shards.begin(), shards.end()));
    }
  }
}

TEST_CASE("zigzag shards of a worked example") {
  // 11 tokens over 3 ranks: chunks 2 2 2 2 2 1, pairs (0,5) (1,4) (2,3).
  CHECK(zigzag_shard_length(11, 3, 0) == 3);
  CHECK(zigzag_shard_length(11, 3, 1) == 4);
  CHECK(zigzag_shard_length(11, 3, 2) == 4);
}

TEST_CASE("zigzag causal areas count every query-key pair once") {
  for (const int ring_size : {1, 2, 3, 5, 8}) {
    for (std::int64_t length = 0; length < 60; ++length) {
      std::vector<std::int64_t> shards(static_cast<std::size_t>(ring_size));
      zigzag_shard_lengths(length, shards);
      CHECK(shards == shards_by_counting(length, ring_size));
      std::int64_t sum = 0;
      for (int i = 0; i < ring_size; ++i) sum += zigzag_causal_area(length, ring_size, i);
      CHECK(sum == length * (length + 1) / 2);
    }
  }
  // 11 tokens over 3 ranks: position 0 holds queries 0, 1 and 10, which see 1, 2 and 11 keys.
  CHECK(zigzag_causal_area(11, 3, 0) == 14);
  CHECK(zigzag_causal_area(11, 3, 1) == 3 + 4 + 9 + 10);
  CHECK(zigzag_causal_area(11, 3, 2) == 5 + 6 + 7 + 8);
}

TEST_CASE("the smallest ring is the first whose every shard fits") {
  CHECK(smallest_ring(10, 4, 10) == 1);
  CHECK(smallest_ring(11, 4, 10) == 2);
  CHECK(smallest_ring(19, 3, 7) == 3);
  CHECK(smallest_ring(19, 3, 6) == 0);
  for (std::int64_t length = 1; length < 80; ++length) {
    for (std::int64_t bucket = 1; bucket < 30; ++bucket) {
      int expected = 0;
      for (int ring = 8; ring >= 1; --ring) {
        if (largest_zigzag_shard(length, ring) <= bucket) expected = ring;
      }
      CHECK(smallest_ring(length, 8, bucket) == expected);
    }
  }
}

TEST_CASE("zigzag refuses a position outside the ring") {
  CHECK_THROWS_AS(zigzag_shard_length(8, 2, 2), RunFailure);
  CHECK_THROWS_AS(zigzag_shard_length(8, 0, 0), RunFailure);
  CHECK_THROWS_AS(zigzag_shard_length(-1, 2, 0), RunFailure);
  CHECK_THROWS_AS(zigzag_shard_lengths(8, {}), RunFailure);
  CHECK_THROWS_AS(zigzag_causal_area(8, 2, 2), RunFailure);
}

TEST_CASE("the chunks of all positions are the sequence, each token once") {
  for (const int ring_size : {1, 2, 3, 5, 8}) {
    for (const std::int64_t length : {0, 1, 2, 9, 10, 11, 33}) {
      std::vector<int> held(static_cast<std::size_t>(length));
      for (int i = 0; i < ring_size; ++i) {
        const auto [first, second] = zigzag_shard(length, ring_size, i);
        CHECK(first.end <= second.begin);
        CHECK(first.length() + second.length() == zigzag_shard_length(length, ring_size, i));
        for (const TokenRange& chunk : {first, second}) {
          for (std::int64_t token = chunk.begin; token < chunk.end; ++token) ++held[static_cast<std::size_t>(token)];
        }
      }
      CHECK(std::all_of(held.begin(), held.end(), [](int times) { return times == 1; }));
    }
  }
  // 11 tokens over 3 ranks: chunks 0-1, 2-3, 4-5, 6-7, 8-9, 10.
  CHECK(zigzag_shard(11, 3, 0)[1].begin == 10);
  CHECK(zigzag_shard(11, 3, 2)[0].begin == 4);
  CHECK(zigzag_shard(11, 3, 2)[1].end == 8);
}
