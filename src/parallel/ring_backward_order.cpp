#include "skrull/parallel/ring_backward_order.h"

#include <algorithm>

#include "skrull/core/error.h"
#include "skrull/schedule/zigzag.h"

namespace skrull {
namespace {

/// Queries of the smallest slice: a tile of the attention kernels. Smaller ones would load keys more often.
constexpr std::int64_t least_slice = 128;

double pairs_of(const AttentionSegment& segment) {
  const std::int64_t hidden = segment.causal ? causal_area(segment.q_len - 1) : 0;
  return static_cast<double>(segment.q_len * segment.k_len - hidden);
}

double pairs_of(const std::vector<AttentionSegment>& segments) {
  double pairs = 0;
  for (const AttentionSegment& segment : segments) pairs += pairs_of(segment);
  return pairs;
}

/// Queries [begin, end) of a causal segment with as many keys as queries.
AttentionSegment slice_of(const AttentionSegment& segment, std::int64_t begin, std::int64_t end) {
  return {segment.q_begin + begin, end - begin, segment.k_begin, end, true};
}

/// The end of the slice from query `begin` on whose pairs are the nearest to `work`; `begin` for none.
std::int64_t slice_end(const AttentionSegment& segment, std::int64_t begin, double work, std::int64_t slice_rows) {
  std::int64_t end = begin;
  double taken = 0;
  while (end < segment.q_len) {
    const std::int64_t next = segment.q_len - end < 2 * slice_rows ? segment.q_len : end + slice_rows;
    const double more = pairs_of(slice_of(segment, end, next));
    if (taken + more / 2 > work) break;
    taken += more;
    end = next;
  }
  return end;
}

/// Regions of a buffer that is used round and round.
class Regions {
 public:
  explicit Regions(std::int64_t rows) : rows_(rows) {}

  /// Where the next step's `rows` lie. Raises `steps_over` to the number of steps that must be over before.
  std::int64_t take(std::int64_t rows, std::size_t& steps_over) {
    require(rows <= rows_, "a ring brings {} rows in one hop, its buffer has {}", rows, rows_);
    if (next_ + rows > rows_) next_ = 0;
    const RowRange region{next_, rows};
    for (std::size_t step = taken_.size(); step > steps_over; --step) {
      const RowRange& other = taken_[step - 1];
      if (region.begin < other.begin + other.count && other.begin < region.begin + region.count) steps_over = step;
    }
    taken_.push_back(region);
    next_ += rows;
    return region.begin;
  }

 private:
  std::int64_t rows_;
  std::int64_t next_ = 0;
  std::vector<RowRange> taken_;  ///< by step
};

std::vector<RingBackwardStep> steps_of(const RingSchedule& schedule, std::int64_t gradient_rows) {
  std::vector<RingBackwardStep> steps;
  Regions outbox(gradient_rows);
  Regions inbox(gradient_rows);
  for (std::size_t round = 0; round < schedule.rounds.size(); ++round) {
    const std::vector<AttentionSegment>& segments = schedule.rounds[round].segments;
    for (const RingHop& hop : schedule.rounds[round].hops) {
      RingBackwardStep step{round, {}, hop.arrived, hop.own, hop.source, hop.reader, 0, 0, 0};
      for (std::int64_t i = 0; i < hop.segments.count; ++i) {
        AttentionSegment segment = segments[static_cast<std::size_t>(hop.segments.begin + i)];
        segment.k_begin -= hop.arrived.begin;
        step.segments.push_back(segment);
      }
      step.outbox_begin = outbox.take(hop.arrived.count, step.steps_over);
      step.inbox_begin = inbox.take(hop.own.count, step.steps_over);
      steps.push_back(std::move(step));
    }
  }
  return steps;
}

std::int64_t rows_of(const std::vector<RowTransfer>& transfers) {
  std::int64_t rows = 0;
  for (const RowTransfer& transfer : transfers) rows += transfer.rows;
  return rows;
}

/// Transfers in rows of keys and values. A rank sends and receives at the same time.
std::vector<StepCost> costs_of(const RingSchedule& schedule, const std::vector<RingBackwardStep>& steps,
                               double gradient_row_cost) {
  std::vector<StepCost> costs;
  for (std::size_t i = 0; i < steps.size(); ++i) {
    const RingBackwardStep& step = steps[i];
    StepCost cost;
    cost.work = pairs_of(step.segments);
    if (i == 0 || steps[i - 1].round != step.round) {
      const RingRound& round = schedule.rounds[step.round];
      cost.arrival = static_cast<double>(std::max(rows_of(round.key_value_sends), rows_of(round.key_value_receives)));
    }
    cost.gradients = gradient_row_cost * static_cast<double>(std::max(step.arrived.count, step.own.count));
    cost.steps_over = step.steps_over;
    costs.push_back(cost);
  }
  return costs;
}

/// Local sequences, then own shards, in packed rows.
std::vector<AttentionSegment> segments_without_hops(const RingSchedule& schedule) {
  std::vector<AttentionSegment> segments = schedule.local;
  for (AttentionSegment segment : schedule.own_shards) {
    segment.q_begin += schedule.local_rows;
    segment.k_begin += schedule.local_rows;
    segments.push_back(segment);
  }
  return segments;
}

}  // namespace

std::vector<double> place_local_work(double local_work, const std::vector<StepCost>& steps) {
  double work = local_work;
  double transfers = 0;
  for (const StepCost& step : steps) {
    work += step.work;
    transfers += step.arrival + step.gradients;
  }
  const double rate = transfers > 0 ? work / transfers : 0;
  double link = 0;  // when it is free
  std::vector<double> arrived;
  arrived.reserve(steps.size());
  for (const StepCost& step : steps) arrived.push_back(link += rate * step.arrival);

  std::vector<double> placed;
  std::vector<double> home;  // when the gradients of each step are
  double clock = 0;
  for (std::size_t i = 0; i < steps.size(); ++i) {
    const std::size_t over = steps[i].steps_over;
    const double ready = std::max(arrived[i], over > 0 ? home[over - 1] : 0.0);
    placed.push_back(std::clamp(ready - clock, 0.0, local_work));
    local_work -= placed.back();
    clock = std::max(clock + placed.back(), ready) + steps[i].work;
    link = std::max(link, clock) + rate * steps[i].gradients;
    home.push_back(link);
  }
  placed.push_back(local_work);
  return placed;
}

std::vector<std::vector<AttentionSegment>> cut_into_slices(const std::vector<AttentionSegment>& segments,
                                                           const std::vector<double>& work, std::int64_t slice_rows) {
  require(!work.empty() && slice_rows > 0, "{} groups of slices of {} rows", work.size(), slice_rows);
  std::vector<std::vector<AttentionSegment>> groups(work.size());
  std::size_t group = 0;
  double missing = work[0];  // of this group, and of those before it together
  for (const AttentionSegment& segment : segments) {
    require(segment.causal && segment.q_len == segment.k_len, "a segment of {} queries and {} keys to cut",
            segment.q_len, segment.k_len);
    std::int64_t begin = 0;
    while (begin < segment.q_len) {
      const bool last = group + 1 == groups.size();
      const std::int64_t end = last ? segment.q_len : slice_end(segment, begin, missing, slice_rows);
      if (end > begin) {
        groups[group].push_back(slice_of(segment, begin, end));
        missing -= pairs_of(groups[group].back());
        begin = end;
      }
      if (begin < segment.q_len) missing += work[++group];
    }
  }
  return groups;
}

RingBackwardOrder order_backward(const RingSchedule& schedule, const RingBackwardOptions& options) {
  RingBackwardOrder order;
  order.steps = steps_of(schedule, options.gradient_rows);
  const std::vector<AttentionSegment> segments = segments_without_hops(schedule);
  const std::vector<StepCost> costs = costs_of(schedule, order.steps, options.gradient_row_cost);
  order.local = cut_into_slices(segments, place_local_work(pairs_of(segments), costs), least_slice);
  return order;
}

}  // namespace skrull
