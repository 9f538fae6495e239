// The rings of a micro-batch, played for all ranks without any communicator: what is sent is what is received, rows
// reach those who compute with them, and gradients come home.
#include <map>
#include <tuple>
#include <utility>
#include <vector>

#include "ring_batches.h"
#include "skrull/core/error.h"
#include "skrull/parallel/ring_schedule.h"
#include "support/catch.h"

using namespace skrull;
using test::PlannedBatch;

namespace {

using Token = std::pair<std::int64_t, std::int64_t>;  ///< (sequence, position)
using Rows = std::vector<Token>;

Rows ring_tokens(const MicroBatch& batch) {
  Rows rows;
  for (const Ring& ring : batch.rings) {
    for (const PackedShard& shard : ring.shards) {
      for (const TokenRange& chunk : shard.chunks) {
        for (std::int64_t t = chunk.begin; t < chunk.end; ++t) rows.emplace_back(shard.sample, t);
      }
    }
  }
  return rows;
}

Rows slice(const Rows& rows, std::int64_t begin, std::int64_t count) {
  return {rows.begin() + begin, rows.begin() + begin + count};
}

/// All ranks of a replica, in lockstep.
class Replica {
 public:
  Replica(const PlannedBatch& planned, int ranks) {
    for (int rank = 0; rank < ranks; ++rank) {
      const MicroBatch batch = test::batch_of_rank(planned, rank);
      schedules_.push_back(schedule_rings(batch));
      own_.push_back(ring_tokens(batch));
      arrivals_.emplace_back(static_cast<std::size_t>(schedules_.back().arrival_rows), Token{-1, -1});
      inbox_.emplace_back(static_cast<std::size_t>(schedules_.back().inbox_rows), Token{-1, -1});
    }
  }

  void play() {
    std::size_t rounds = 0;
    for (const RingSchedule& schedule : schedules_) rounds = std::max(rounds, schedule.rounds.size());
    for (std::size_t rank = 0; rank < own_.size(); ++rank) {
      attend(schedules_[rank].own_shards, own_[rank], own_[rank]);
    }
    for (std::size_t i = 0; i < rounds; ++i) {
      exchange(i, &RingRound::key_value_sends, &RingRound::key_value_receives, i == 0 ? own_ : arrivals_, arrivals_);
      for (std::size_t rank = 0; rank < own_.size(); ++rank) {
        if (i < schedules_[rank].rounds.size()) {
          attend(schedules_[rank].rounds[i].segments, own_[rank], arrivals_[rank]);
        }
      }
    }
    for (std::size_t i = 0; i < rounds; ++i) {
      exchange(i, &RingRound::gradient_sends, &RingRound::gradient_receives, arrivals_, inbox_);
    }
  }

  void check(const PlannedBatch& planned) const {
    std::size_t pairs = 0;
    for (const DistributedSequence& distributed : planned.micro_batch.distributed) {
      const std::int64_t length = planned.lengths[static_cast<std::size_t>(distributed.sequence)];
      pairs += static_cast<std::size_t>(causal_area(length));
    }
    CHECK(met_.size() == pairs);
    for (const auto& [pair, times] : met_) {
      const auto& [sequence, query, key] = pair;
      if (times != 1 || key > query) FAIL("query " << query << " of " << sequence << " met key " << key);
    }
    for (std::size_t rank = 0; rank < own_.size(); ++rank) {
      std::map<std::int64_t, int> returns;  // per own row
      for (const RingRound& round : schedules_[rank].rounds) {
        for (const ReturnedRows& rows : round.returned) {
          CHECK(slice(inbox_[rank], rows.inbox_begin, rows.rows) == slice(own_[rank], rows.ring_begin, rows.rows));
          for (std::int64_t row = 0; row < rows.rows; ++row) ++returns[rows.ring_begin + row];
        }
      }
      std::map<std::int64_t, int> ring_of;  // sequence -> size of its ring
      for (const auto& distributed : planned.micro_batch.distributed) {
        ring_of[distributed.sequence] = static_cast<int>(distributed.ranks.size());
      }
      for (std::size_t row = 0; row < own_[rank].size(); ++row) {
        if (returns[static_cast<std::int64_t>(row)] != ring_of[own_[rank][row].first] - 1) FAIL("rank " << rank);
      }
    }
  }

 private:
  using Transfers = std::vector<RowTransfer> RingRound::*;

  /// Between two ranks messages match in the order of the lists, as Communicator::exchange says.
  void exchange(std::size_t round, Transfers sends, Transfers receives, std::vector<Rows> from, std::vector<Rows>& to) {
    std::map<std::pair<int, int>, std::vector<Rows>> under_way;  // (sender, receiver)
    const auto of_round = [&](std::size_t rank, Transfers list) {
      const auto& rounds = schedules_[rank].rounds;
      return round < rounds.size() ? rounds[round].*list : std::vector<RowTransfer>();
    };
    for (std::size_t rank = 0; rank < own_.size(); ++rank) {
      for (const RowTransfer& send : of_round(rank, sends)) {
        under_way[{static_cast<int>(rank), send.peer}].push_back(slice(from[rank], send.begin, send.rows));
      }
    }
    for (std::size_t rank = 0; rank < own_.size(); ++rank) {
      for (const RowTransfer& receive : of_round(rank, receives)) {
        auto& messages = under_way[{receive.peer, static_cast<int>(rank)}];
        REQUIRE(!messages.empty());
        REQUIRE(static_cast<std::int64_t>(messages.front().size()) == receive.rows);
        std::copy(messages.front().begin(), messages.front().end(), to[rank].begin() + receive.begin);
        messages.erase(messages.begin());
      }
    }
    for (const auto& [pair, messages] : under_way) CHECK(messages.empty());
  }

  void attend(const std::vector<AttentionSegment>& segments, const Rows& queries, const Rows& keys) {
    for (const AttentionSegment& segment : segments) {
      for (std::int64_t q = 0; q < segment.q_len; ++q) {
        const Token& query = queries.at(static_cast<std::size_t>(segment.q_begin + q));
        const std::int64_t seen = segment.causal ? q + 1 : segment.k_len;
        for (std::int64_t k = 0; k < seen; ++k) {
          const Token& key = keys.at(static_cast<std::size_t>(segment.k_begin + k));
          if (key.first != query.first) FAIL("a query of " << query.first << " met a key of " << key.first);
          ++met_[{query.first, query.second, key.second}];
        }
      }
    }
  }

  std::vector<RingSchedule> schedules_;
  std::vector<Rows> own_, arrivals_, inbox_;
  std::map<std::tuple<std::int64_t, std::int64_t, std::int64_t>, int> met_;
};

}  // namespace

TEST_CASE("sequences of any length on rings of 2 to 8: rows and gradients arrive where they belong",
          "[ring_schedule]") {
  for (int ranks = 2; ranks <= 8; ++ranks) {
    INFO(ranks << " ranks");
    const PlannedBatch planned = test::on_one_ring(ranks, {1, 31, 2, 3, 64, 7});
    Replica replica(planned, ranks);
    replica.play();
    replica.check(planned);
  }
}

TEST_CASE("rings that overlap in any way, beside local sequences", "[ring_schedule]") {
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    const int ranks = 2 + static_cast<int>(seed % 7);
    INFO("seed " << seed << ", " << ranks << " ranks");
    const PlannedBatch planned = test::random_batch(seed, ranks, 8, 24);
    Replica replica(planned, ranks);
    replica.play();
    replica.check(planned);
    for (int rank = 0; rank < ranks; ++rank) {
      const RingSchedule schedule = schedule_rings(test::batch_of_rank(planned, rank));
      CHECK(schedule.arrival_rows <= (ranks - 1) * test::largest_share(planned));
      CHECK(schedule.inbox_rows <= (ranks - 1) * test::largest_share(planned));
    }
  }
}

TEST_CASE("a micro-batch whose shards are not where they should be is refused", "[ring_schedule]") {
  const MicroBatch good = test::batch_of_rank(test::on_one_ring(2, {9, 5}), 0);
  CHECK(schedule_rings(good).ring_rows == 8);
  MicroBatch batch = good;
  batch.rings[0].shards[1].begin += 1;
  CHECK_THROWS_AS(schedule_rings(batch), RunFailure);
  batch = good;
  batch.rings[0].position = 2;
  CHECK_THROWS_AS(schedule_rings(batch), RunFailure);
  batch = good;
  batch.rings[0].ranks = {0};
  CHECK_THROWS_AS(schedule_rings(batch), RunFailure);
  batch = good;
  batch.rings[0].shards.pop_back();
  CHECK_THROWS_AS(schedule_rings(batch), RunFailure);
}
