#pragma once

#include "skrull/device/stream.h"

namespace skrull {

/// Time on a stream's clock: of what is queued between two calls.
class StreamStopwatch {
 public:
  explicit StreamStopwatch(Stream& stream) : stream_(stream), begin_(stream.record_time()) {}

  /// Since it was made; waits for what was queued.
  double seconds() const {
    const Event end = stream_.record_time();
    end.synchronize();
    return end.seconds() - begin_.seconds();
  }

 private:
  Stream& stream_;
  Event begin_;
};

}  // namespace skrull
