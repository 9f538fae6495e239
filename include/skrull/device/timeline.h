#pragma once
// What a device's streams did when: the times of a step for its metrics and, when asked for, every span for a trace.

#include <cstdint>
#include <string>
#include <vector>

#include "skrull/device/stream.h"

namespace skrull {

enum class SpanKind {
  compute,
  communication,  ///< on the communication stream: from when it may begin until it is done, waiting for peers included
  wait            ///< the compute stream waits for a communication
};

/// What spans are noted.
enum class TimelineDetail { none, communication_and_waits, all };

/// Which sequences of the micro-batch a span works on.
enum class SpanSequences { none, local, of_rings };

/// What a span is of. Numbers count from 0; -1: does not apply.
struct SpanLabel {
  const char* name = "";  ///< a literal
  std::int64_t layer = -1;
  std::int64_t hop = -1;  ///< of the rings; 0: the own shards
  SpanSequences sequences = SpanSequences::none;
};

struct TimelineSpan {
  SpanKind kind = SpanKind::compute;
  SpanLabel label;
  std::int64_t micro_batch = -1;
  double begin = 0.0;  ///< seconds on the clocks of the device's streams
  double end = 0.0;

  double seconds() const { return end - begin; }
};

/// Sums over spans, in seconds.
struct TimelineSums {
  double communication = 0.0;
  double waiting = 0.0;
  double waiting_in_micro_batches = 0.0;
};
TimelineSums sum_spans(const std::vector<TimelineSpan>& spans);

/// Spans are noted by the thread that queues the work; they cost an event at either end.
class Timeline {
 public:
  /// Notes what is queued on `stream` while it lives. Must not outlive the timeline.
  class Scope {
   public:
    Scope(Timeline* timeline, SpanKind kind, Stream& stream, const SpanLabel& label);
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    Timeline* timeline_;  ///< nullptr: nothing is noted
    SpanKind kind_;
    Stream& stream_;
    SpanLabel label_;
    Event begin_;
  };

  /// At first none.
  void set_detail(TimelineDetail detail) { detail_ = detail; }
  /// Of the spans from now on; -1: none.
  void set_micro_batch(std::int64_t index) { micro_batch_ = index; }

  [[nodiscard]] Scope scope(SpanKind kind, Stream& stream, const SpanLabel& label) {
    const bool noted = detail_ == TimelineDetail::all ||
                       (detail_ == TimelineDetail::communication_and_waits && kind != SpanKind::compute);
    return {noted ? this : nullptr, kind, stream, label};
  }

  /// The spans since the last call, in the order in which their work was queued. Waits for the last one of each stream.
  std::vector<TimelineSpan> take();

 private:
  struct Noted {
    SpanKind kind;
    SpanLabel label;
    std::int64_t micro_batch;
    Event begin;
    Event end;
  };

  TimelineDetail detail_ = TimelineDetail::none;
  std::int64_t micro_batch_ = -1;
  std::vector<Noted> noted_;
};

}  // namespace skrull
