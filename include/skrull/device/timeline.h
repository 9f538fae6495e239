#pragma once
// What a device's streams did when: the times of a step for its metrics and, when asked for, every span for a trace.

#include <cstdint>
#include <string>
#include <vector>

#include "skrull/device/stream.h"

namespace skrull {

enum class SpanKind {
  compute,        ///< kernels; noted for a trace alone
  communication,  ///< on the communication stream: from when it may begin until it is done, waiting for peers included
  wait            ///< the compute stream waits for a communication
};

/// What a span is of. Numbers count from 0; -1: does not apply.
struct SpanLabel {
  const char* name = "";  ///< a literal
  std::int64_t layer = -1;
  std::int64_t hop = -1;
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

  /// Whether compute spans are noted too.
  void set_detailed(bool detailed) { detailed_ = detailed; }
  /// Of the spans from now on; -1: none.
  void set_micro_batch(std::int64_t index) { micro_batch_ = index; }

  [[nodiscard]] Scope scope(SpanKind kind, Stream& stream, const SpanLabel& label) {
    return {detailed_ || kind != SpanKind::compute ? this : nullptr, kind, stream, label};
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

  bool detailed_ = false;
  std::int64_t micro_batch_ = -1;
  std::vector<Noted> noted_;
};

}  // namespace skrull
