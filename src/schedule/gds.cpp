#include "gds.h"

#include <algorithm>

#include "replica_dealing.h"

namespace skrull {
namespace {

class StrideCutter {
 public:
  StrideCutter(const DacpProblem& problem, const std::vector<std::int64_t>& ascending)
      : problem_(problem), ascending_(ascending) {}

  std::int64_t length_at(std::size_t k) const { return problem_.lengths[static_cast<std::size_t>(ascending_[k])]; }
  std::int64_t capacity() const { return problem_.bucket_tokens * problem_.context_parallel; }

  std::size_t least_count() const {
    std::int64_t tokens = 0;
    for (std::size_t k = 0; k < ascending_.size(); ++k) tokens += length_at(k);
    return static_cast<std::size_t>((tokens + capacity() - 1) / capacity());
  }

  /// All `count` micro-batches, or nothing when a rule forbids one of them.
  std::optional<std::vector<PlannedMicroBatch>> cut(std::size_t count) const {
    std::vector<std::int64_t> tokens(count);
    for (std::size_t k = 0; k < ascending_.size(); ++k) tokens[k % count] += length_at(k);
    const auto fullest = static_cast<std::size_t>(std::max_element(tokens.begin(), tokens.end()) - tokens.begin());
    if (tokens[fullest] > capacity()) return std::nullopt;
    // The fullest one is the likeliest to fail: trying it first keeps failing counts cheap.
    std::vector<std::optional<PlannedMicroBatch>> placed(count);
    placed[fullest] = dacp(problem_, stride(fullest, count));
    if (!placed[fullest]) return std::nullopt;
    std::vector<PlannedMicroBatch> micro_batches;
    micro_batches.reserve(count);
    for (std::size_t j = 0; j < count; ++j) {
      if (j != fullest) placed[j] = dacp(problem_, stride(j, count));
      if (!placed[j]) return std::nullopt;
      micro_batches.push_back(std::move(*placed[j]));
    }
    return micro_batches;
  }

 private:
  std::vector<std::int64_t> stride(std::size_t first, std::size_t step) const {
    std::vector<std::int64_t> taken;
    for (std::size_t k = first; k < ascending_.size(); k += step) taken.push_back(ascending_[k]);
    return taken;
  }

  const DacpProblem& problem_;
  const std::vector<std::int64_t>& ascending_;
};

}  // namespace

std::vector<PlannedMicroBatch> stride_micro_batches(const DacpProblem& problem, std::vector<std::int64_t> sequences) {
  std::stable_sort(sequences.begin(), sequences.end(), [&](std::int64_t a, std::int64_t b) {
    return problem.lengths[static_cast<std::size_t>(a)] < problem.lengths[static_cast<std::size_t>(b)];
  });
  const StrideCutter cutter(problem, sequences);
  for (std::size_t count = cutter.least_count(); count < sequences.size(); ++count) {
    if (auto micro_batches = cutter.cut(count)) return std::move(*micro_batches);
  }
  if (sequences.empty()) return {};
  return cutter.cut(sequences.size()).value();
}

ReplicaMicroBatches global_data_schedule(const PolicyInput& input, LocalRule local_rule) {
  const ScheduleRequest& request = input.request;
  std::vector<double> flops;
  flops.reserve(request.lengths.size());
  for (const std::int64_t length : request.lengths) flops.push_back(input.cost.flops(length, causal_area(length)));
  const DacpProblem problem{request.lengths, flops, request.topology.context_parallel, request.bucket_tokens,
                            local_rule};
  ReplicaMicroBatches planned;
  for (auto& sequences : deal_by_cost(flops, request.topology.data_parallel)) {
    planned.push_back(stride_micro_batches(problem, std::move(sequences)));
  }
  return planned;
}

}  // namespace skrull
