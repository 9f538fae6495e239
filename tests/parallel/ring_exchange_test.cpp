// The rings of a micro-batch, played for all ranks without any communicator: what is sent is what is received, rows
// reach those who compute with them, and gradients come home.
#include <algorithm>
#include <map>
#include <tuple>
#include <utility>
#include <vector>

#include "ring_batches.h"
#include "skrull/core/error.h"
#include "skrull/parallel/ring_backward_order.h"
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

/// All ranks of a replica: forward hops in lockstep, the backward's steps as far as each rank gets.
class Replica {
 public:
  Replica(const PlannedBatch& planned, int ranks, std::int64_t gradient_rows) {
    for (int rank = 0; rank < ranks; ++rank) {
      const MicroBatch batch = test::batch_of_rank(planned, rank);
      schedules_.push_back(schedule_rings(batch));
      orders_.push_back(order_backward(schedules_.back(), {gradient_rows, 2}));
      own_.push_back(ring_tokens(batch));
      arrivals_.emplace_back(static_cast<std::size_t>(schedules_.back().arrival_rows), nothing);
      outbox_.emplace_back(static_cast<std::size_t>(gradient_rows), nothing);
      inbox_.emplace_back(static_cast<std::size_t>(gradient_rows), nothing);
      returns_.emplace_back(own_.back().size());
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
    play_backward();
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
      std::map<std::int64_t, int> ring_of;  // sequence -> size of its ring
      for (const auto& distributed : planned.micro_batch.distributed) {
        ring_of[distributed.sequence] = static_cast<int>(distributed.ranks.size());
      }
      for (std::size_t row = 0; row < own_[rank].size(); ++row) {
        if (returns_[rank][row] != ring_of[own_[rank][row].first] - 1) FAIL("rank " << rank);
      }
    }
  }

 private:
  static constexpr Token nothing = {-1, -1};
  using Transfers = std::vector<RowTransfer> RingRound::*;

  /// Every exchange waits until its message has been taken and its own has come, and no step starts before those whose
  /// regions it uses are over: the strictest communicator there is. Fails when ranks wait in a circle.
  void play_backward() {
    const std::size_t ranks = own_.size();
    std::vector<std::size_t> over(ranks, 0);   // steps of each rank
    std::vector<std::size_t> added(ranks, 0);  // steps whose gradients it has added
    const auto step_of = [&](std::size_t rank) -> const RingBackwardStep* {
      return over[rank] < orders_[rank].steps.size() ? &orders_[rank].steps[over[rank]] : nullptr;
    };
    for (std::size_t rank = 0; rank < ranks; ++rank) compute(rank, step_of(rank), added[rank]);
    // A step is over when its ring's other ranks are at the same hop of the same ring.
    for (bool moved = true; moved;) {
      moved = false;
      for (std::size_t rank = 0; rank < ranks; ++rank) {
        const std::vector<std::size_t> circle = circle_of(rank, step_of);
        if (circle.empty()) continue;
        moved = true;
        for (const std::size_t member : circle) {
          const RingBackwardStep& step = *step_of(member);
          const RingBackwardStep& sender = *step_of(static_cast<std::size_t>(step.reader));
          REQUIRE(sender.arrived.count == step.own.count);
          const Rows rows = slice(outbox_[static_cast<std::size_t>(step.reader)], sender.outbox_begin, step.own.count);
          std::copy(rows.begin(), rows.end(), inbox_[member].begin() + step.inbox_begin);
        }
        for (const std::size_t member : circle) {
          ++over[member];
          compute(member, step_of(member), added[member]);
        }
      }
    }
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      if (over[rank] != orders_[rank].steps.size()) FAIL("rank " << rank << " waits in step " << over[rank]);
      add_returns(rank, over[rank], added[rank]);
    }
  }

  /// The ranks that take one step together, from `rank` on to the rank that gets its gradients, and so on until it is
  /// `rank` again; empty when any of them is at another step.
  template <class StepOf>
  std::vector<std::size_t> circle_of(std::size_t rank, const StepOf& step_of) const {
    std::vector<std::size_t> circle;
    std::size_t member = rank;
    do {
      const RingBackwardStep* step = step_of(member);
      if (step == nullptr) return {};
      const auto next = static_cast<std::size_t>(step->source);
      const RingBackwardStep* of_next = step_of(next);
      if (of_next == nullptr || of_next->reader != static_cast<int>(member) || of_next->round != step->round) return {};
      if (of_next->own.count != step->arrived.count) return {};
      circle.push_back(member);
      member = next;
    } while (member != rank && circle.size() <= own_.size());
    return circle;
  }

  /// What the step before its exchange does to the outbox: the gradient of a row is named as the row.
  void compute(std::size_t rank, const RingBackwardStep* step, std::size_t& added) {
    if (step == nullptr) return;
    add_returns(rank, step->steps_over, added);
    for (const AttentionSegment& segment : step->segments)
      CHECK(segment.k_begin + segment.k_len <= step->arrived.count);
    const Rows rows = slice(arrivals_[rank], step->arrived.begin, step->arrived.count);
    std::copy(rows.begin(), rows.end(), outbox_[rank].begin() + step->outbox_begin);
  }

  void add_returns(std::size_t rank, std::size_t steps, std::size_t& added) {
    for (; added < steps; ++added) {
      const RingBackwardStep& step = orders_[rank].steps[added];
      CHECK(slice(inbox_[rank], step.inbox_begin, step.own.count) == slice(own_[rank], step.own.begin, step.own.count));
      for (std::int64_t row = 0; row < step.own.count; ++row) {
        ++returns_[rank][static_cast<std::size_t>(step.own.begin + row)];
      }
    }
  }

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
  std::vector<RingBackwardOrder> orders_;
  std::vector<Rows> own_, arrivals_, outbox_, inbox_;
  std::vector<std::vector<int>> returns_;  ///< of each own row, by rank
  std::map<std::tuple<std::int64_t, std::int64_t, std::int64_t>, int> met_;
};

}  // namespace

TEST_CASE("sequences of any length on rings of 2 to 8: rows and gradients arrive where they belong",
          "[ring_schedule]") {
  for (int ranks = 2; ranks <= 8; ++ranks) {
    INFO(ranks << " ranks");
    const PlannedBatch planned = test::on_one_ring(ranks, {1, 31, 2, 3, 64, 7});
    for (const std::int64_t shards : {1, 2, 7}) {
      Replica replica(planned, ranks, shards * test::largest_share(planned));
      replica.play();
      replica.check(planned);
    }
  }
}

TEST_CASE("rings that overlap in any way, beside local sequences", "[ring_schedule]") {
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    const int ranks = 2 + static_cast<int>(seed % 7);
    INFO("seed " << seed << ", " << ranks << " ranks");
    const PlannedBatch planned = test::random_batch(seed, ranks, 8, 24);
    for (const std::int64_t shards : {1, 3}) {
      Replica replica(planned, ranks, shards * test::largest_share(planned));
      replica.play();
      replica.check(planned);
    }
    for (int rank = 0; rank < ranks; ++rank) {
      const RingSchedule schedule = schedule_rings(test::batch_of_rank(planned, rank));
      CHECK(schedule.arrival_rows <= (ranks - 1) * test::largest_share(planned));
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
