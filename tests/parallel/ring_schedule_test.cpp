// Which query meets which key at which hop: the whole table of a ring of 3, and what holds for rings of any size.
#include "skrull/parallel/ring_schedule.h"

#include <algorithm>
#include <set>
#include <vector>

#include "skrull/core/error.h"
#include "skrull/schedule/zigzag.h"
#include "support/catch.h"

using namespace skrull;

namespace {

const std::vector<int> ring_sizes = {1, 2, 3, 4, 5, 7, 8, 16};

/// The tokens of a shard in the order of its rows.
std::vector<std::int64_t> tokens_of(std::int64_t length, int ring_size, int position) {
  std::vector<std::int64_t> tokens;
  for (const TokenRange& chunk : zigzag_shard(length, ring_size, position)) {
    for (std::int64_t token = chunk.begin; token < chunk.end; ++token) tokens.push_back(token);
  }
  return tokens;
}

std::int64_t pairs_of(const AttentionSegment& segment) {
  return segment.causal ? causal_area(segment.q_len) : segment.q_len * segment.k_len;
}

}  // namespace

TEST_CASE("the table of a ring of 3", "[ring_schedule]") {
  // 20 tokens in 6 chunks: 0-3, 4-7, 8-10, 11-13, 14-16, 17-19. Position 0 holds 4 + 3, 1 holds 4 + 3, 2 holds 3 + 3.
  struct Row {
    int position, hop, source;
    AttentionSegment segment;
  };
  const std::vector<Row> table = {
      {0, 0, 0, {100, 7, 200, 7, true}},   // own shard
      {0, 1, 2, {104, 3, 200, 6, false}},  // later: chunk 5 x chunks 2, 3
      {0, 2, 1, {104, 3, 200, 7, false}},  // later: chunk 5 x chunks 1, 4
      {1, 0, 1, {100, 7, 200, 7, true}},   //
      {1, 1, 0, {100, 7, 200, 4, false}},  // earlier: chunks 1, 4 x chunk 0
      {1, 2, 2, {104, 3, 200, 6, false}},  // later: chunk 4 x chunks 2, 3
      {2, 0, 2, {100, 6, 200, 6, true}},   //
      {2, 1, 1, {100, 6, 200, 4, false}},  // earlier: chunks 2, 3 x chunk 1
      {2, 2, 0, {100, 6, 200, 4, false}},  // earlier: chunks 2, 3 x chunk 0
  };
  for (const Row& row : table) {
    INFO("position " << row.position << ", hop " << row.hop);
    CHECK(ring_source(3, row.position, row.hop) == row.source);
    const auto segment = hop_segment(20, 3, row.position, row.hop, 100, 200);
    REQUIRE(segment);
    CHECK(segment->q_begin == row.segment.q_begin);
    CHECK(segment->q_len == row.segment.q_len);
    CHECK(segment->k_begin == row.segment.k_begin);
    CHECK(segment->k_len == row.segment.k_len);
    CHECK(segment->causal == row.segment.causal);
  }
}

TEST_CASE("over the hops every query meets every key before it, and itself, once", "[ring_schedule]") {
  for (const int ring : ring_sizes) {
    for (const std::int64_t length : {0, 1, 2, 3, 7, 15, 16, 31, 32, 33, 64, 101}) {
      INFO(length << " tokens on a ring of " << ring);
      std::vector<int> met(static_cast<std::size_t>(length * length));
      for (int position = 0; position < ring; ++position) {
        const auto queries = tokens_of(length, ring, position);
        for (int hop = 0; hop < ring; ++hop) {
          const auto keys = tokens_of(length, ring, ring_source(ring, position, hop));
          const auto segment = hop_segment(length, ring, position, hop, 0, 0);
          if (!segment) continue;
          REQUIRE(segment->q_begin + segment->q_len <= static_cast<std::int64_t>(queries.size()));
          REQUIRE(segment->k_begin + segment->k_len <= static_cast<std::int64_t>(keys.size()));
          for (std::int64_t q = 0; q < segment->q_len; ++q) {
            const std::int64_t seen = segment->causal ? q + 1 : segment->k_len;
            for (std::int64_t k = 0; k < seen; ++k) {
              ++met[static_cast<std::size_t>(queries[static_cast<std::size_t>(segment->q_begin + q)] * length +
                                             keys[static_cast<std::size_t>(segment->k_begin + k)])];
            }
          }
        }
      }
      for (std::int64_t query = 0; query < length; ++query) {
        for (std::int64_t key = 0; key < length; ++key) {
          if (met[static_cast<std::size_t>(query * length + key)] != (key <= query ? 1 : 0)) {
            FAIL("query " << query << " met key " << key << " " << met[static_cast<std::size_t>(query * length + key)]
                          << " times");
          }
        }
      }
    }
  }
}

TEST_CASE("at every hop the sources are a permutation of the ring", "[ring_schedule]") {
  for (const int ring : ring_sizes) {
    for (int hop = 0; hop < ring; ++hop) {
      std::set<int> sources;
      for (int position = 0; position < ring; ++position) sources.insert(ring_source(ring, position, hop));
      CHECK(static_cast<int>(sources.size()) == ring);
      CHECK((*sources.begin() == 0 && *sources.rbegin() == ring - 1));
      // What is here at one hop is at the next position one hop later.
      if (hop + 1 < ring) CHECK(ring_source(ring, (ring - 1 + 1) % ring, hop + 1) == ring_source(ring, ring - 1, hop));
    }
  }
  CHECK_THROWS_AS(ring_source(3, 3, 0), RunFailure);
  CHECK_THROWS_AS(ring_source(3, 0, 3), RunFailure);
  CHECK_THROWS_AS(hop_segment(-1, 3, 0, 0, 0, 0), RunFailure);
}

TEST_CASE("at every hop all positions have about the same work", "[ring_schedule]") {
  for (const int ring : ring_sizes) {
    for (const std::int64_t chunk : {1, 8, 100}) {
      for (int hop = 0; hop < ring; ++hop) {
        std::vector<std::int64_t> pairs;
        for (int position = 0; position < ring; ++position) {
          pairs.push_back(pairs_of(*hop_segment(2 * ring * chunk, ring, position, hop, 0, 0)));
        }
        // Equal chunks: equal to the pair.
        CHECK(*std::max_element(pairs.begin(), pairs.end()) == *std::min_element(pairs.begin(), pairs.end()));
        CHECK(pairs.front() == (hop == 0 ? causal_area(2 * chunk) : 2 * chunk * chunk));
      }
    }
    // Chunks differ by at most one token: so do their sides.
    const std::int64_t length = 2 * ring * 100 + ring + 1;
    for (int hop = 0; hop < ring; ++hop) {
      for (int position = 0; position < ring; ++position) {
        const std::int64_t pairs = pairs_of(*hop_segment(length, ring, position, hop, 0, 0));
        CHECK(pairs >= (hop == 0 ? causal_area(200) : 2 * 100 * 100));
        CHECK(pairs <= (hop == 0 ? causal_area(202) : 2 * 101 * 101));
      }
    }
  }
}
