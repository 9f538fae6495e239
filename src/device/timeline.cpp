#include "skrull/device/timeline.h"

#include <exception>
#include <utility>

namespace skrull {

TimelineSums sum_spans(const std::vector<TimelineSpan>& spans) {
  TimelineSums sums;
  for (const TimelineSpan& span : spans) {
    if (span.kind == SpanKind::communication) sums.communication += span.seconds();
    if (span.kind != SpanKind::wait) continue;
    sums.waiting += span.seconds();
    if (span.micro_batch >= 0) sums.waiting_in_micro_batches += span.seconds();
  }
  return sums;
}

Timeline::Scope::Scope(Timeline* timeline, SpanKind kind, Stream& stream, const SpanLabel& label)
    : timeline_(timeline), kind_(kind), stream_(stream), label_(label) {
  if (timeline_ != nullptr) begin_ = stream_.record_time();
}

Timeline::Scope::~Scope() {
  if (timeline_ == nullptr) return;
  try {
    timeline_->noted_.push_back({kind_, label_, timeline_->micro_batch_, begin_, stream_.record_time()});
  } catch (const std::exception&) {  // no memory: the span is missing, the work is done
  }
}

std::vector<TimelineSpan> Timeline::take() {
  std::vector<TimelineSpan> spans;
  spans.reserve(noted_.size());
  for (const Noted& noted : std::exchange(noted_, {})) {
    noted.end.synchronize();
    spans.push_back({noted.kind, noted.label, noted.micro_batch, noted.begin.seconds(), noted.end.seconds()});
  }
  return spans;
}

}  // namespace skrull
