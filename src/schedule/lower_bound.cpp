#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "skrull/core/error.h"
#include "skrull/schedule/bound.h"

namespace skrull {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

/// One ring size for sequences of one length.
struct RingChoice {
  double alone = 0.0;  ///< seconds alone in a micro-batch
  double work = 0.0;   ///< least attention seconds over all ranks, of this choice and every faster one
};

struct LengthClass {
  double count = 0.0;
  std::vector<RingChoice> choices;  ///< ascending in `alone`
};

class BoundSearch {
 public:
  BoundSearch(const ScheduleRequest& request, const CostModel& cost) : request_(request), cost_(cost) {
    std::map<std::int64_t, double> counts;
    for (const std::int64_t length : request.lengths) {
      counts[length] += 1.0;
      tokens_ += static_cast<double>(length);
    }
    classes_.reserve(counts.size());
    for (const auto& [length, count] : counts) classes_.push_back({count, choices_of_length(length)});
  }

  LowerBound find() const {
    LowerBound bound;
    for (const LengthClass& sequences : classes_) {
      bound.largest_sequence = std::max(bound.largest_sequence, sequences.choices.front().alone);
    }
    bound.memory = cost_.micro_batch_overhead() * std::ceil(tokens_ / (capacity() * replicas()));
    double low = std::max(bound.largest_sequence, bound.memory);
    bound.reason = bound.largest_sequence >= bound.memory ? BoundReason::largest_sequence : BoundReason::memory;
    bound.seconds = low;
    if (work(low) <= low) return bound;
    bound.reason = BoundReason::work;
    double high = low;
    while (work(high) > high) high *= 1.5;
    for (int i = 0; i < 60; ++i) {
      const double middle = (low + high) / 2.0;
      (work(middle) > middle ? low : high) = middle;
    }
    bound.seconds = low;
    return bound;
  }

 private:
  double replicas() const { return request_.topology.data_parallel; }
  double ranks() const { return request_.topology.context_parallel; }
  double capacity() const { return static_cast<double>(request_.bucket_tokens) * ranks(); }

  std::vector<RingChoice> choices_of_length(std::int64_t length) const {
    const int ranks = request_.topology.context_parallel;
    std::vector<RingChoice> choices;
    for (int ring = 1; ring <= ranks; ++ring) {
      if (largest_zigzag_shard(length, ring) > request_.bucket_tokens) continue;
      // A ring that could lie inside one node is given the fast link: optimistic, hence safe.
      const Link link = ring <= request_.topology.ranks_per_node ? Link::intra_node : Link::inter_node;
      choices.push_back({cost_.seconds_alone(length, ring, link), cost_.attention_work(length, ring)});
    }
    if (choices.empty()) {
      throw_invalid_input("a sequence of {} tokens fits no ring of {} ranks with bucket_tokens {}", length, ranks,
                          request_.bucket_tokens);
    }
    std::sort(choices.begin(), choices.end(),
              [](const RingChoice& a, const RingChoice& b) { return a.alone < b.alone; });
    for (std::size_t i = 1; i < choices.size(); ++i) {
      choices[i].work = std::min(choices[i].work, choices[i - 1].work);
    }
    return choices;
  }

  /// Least attention seconds when no sequence may take longer than `limit` alone.
  static double attention_work(const LengthClass& sequences, double limit) {
    const auto slower = std::upper_bound(sequences.choices.begin(), sequences.choices.end(), limit * (1.0 + 1e-12),
                                         [](double value, const RingChoice& choice) { return value < choice.alone; });
    if (slower == sequences.choices.begin()) return infinity;
    return sequences.count * std::prev(slower)->work;
  }

  /// The most tokens, up to the bucket, whose linear work alone fits into `limit`.
  std::int64_t processable_tokens(double limit) const {
    if (cost_.linear_seconds(request_.bucket_tokens) <= limit) return request_.bucket_tokens;
    std::int64_t low = 1;
    std::int64_t high = request_.bucket_tokens;
    while (low < high) {
      const std::int64_t middle = low + (high - low + 1) / 2;
      if (cost_.linear_seconds(middle) <= limit) {
        low = middle;
      } else {
        high = middle - 1;
      }
    }
    return low;
  }

  /// Least schedule seconds by the work argument when every sequence must be done within `limit`.
  double work(double limit) const {
    double total = tokens_ * cost_.linear_seconds_per_token(processable_tokens(limit));
    for (const LengthClass& sequences : classes_) total += attention_work(sequences, limit);
    if (!std::isfinite(total)) return infinity;
    const double micro_batches = std::ceil(tokens_ / capacity());
    double least = infinity;
    for (int q = 1; q <= request_.topology.data_parallel; ++q) {
      least = std::min(least, cost_.micro_batch_overhead() * std::max(1.0, micro_batches / q) + total / (q * ranks()));
    }
    return least;
  }

  const ScheduleRequest& request_;
  const CostModel& cost_;
  double tokens_ = 0.0;
  std::vector<LengthClass> classes_;
};

}  // namespace

std::string_view name_of(BoundReason reason) {
  switch (reason) {
    case BoundReason::work:
      return "work";
    case BoundReason::largest_sequence:
      return "largest-sequence";
    case BoundReason::memory:
      return "memory";
  }
  return "?";
}

LowerBound lower_bound(const ScheduleRequest& request, const CostModel& cost) {
  if (request.lengths.empty()) return {};
  return BoundSearch(request, cost).find();
}

}  // namespace skrull
