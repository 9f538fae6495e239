#pragma once
// Streams and events: the order of work on a device. Work on one stream runs in the order it was queued; streams are
// ordered against each other by events alone. The CPU's compute stream runs its work inline, in the caller; its
// communication stream is a queue served by one progress thread, so the same code that orders CUDA streams orders
// these.

#include <functional>
#include <memory>

namespace skrull {

/// The time on a stream, in seconds since a moment that the device's streams share.
class StreamClock {
 public:
  virtual ~StreamClock() = default;
  virtual double seconds() = 0;
  /// The stream does nothing until then: sleeps, or moves on a clock that is not that of the wall. Returns at once when
  /// it is later already.
  virtual void wait_until(double seconds) = 0;
};

/// A point in a stream. Cheap to copy; a default-made event counts as reached since ever.
class Event {
 public:
  class State {
   public:
    virtual ~State() = default;
    virtual bool reached() const = 0;
    /// Blocks the calling thread until reached. Rethrows the error that stopped the event's stream, if one did.
    virtual void synchronize() = 0;
    /// When it was reached, on its stream's clock. Only of a reached event of record_time().
    virtual double seconds() const = 0;
  };

  Event() = default;
  explicit Event(std::shared_ptr<State> state) : state_(std::move(state)) {}
  bool reached() const { return !state_ || state_->reached(); }
  void synchronize() const {
    if (state_) state_->synchronize();
  }
  /// When it was reached, on its stream's clock; 0 of a default-made event. Only of a reached event of record_time().
  double seconds() const { return state_ ? state_->seconds() : 0.0; }
  const std::shared_ptr<State>& state() const { return state_; }

 private:
  std::shared_ptr<State> state_;
};

class Stream {
 public:
  virtual ~Stream() = default;

  /// An event that is reached when everything queued so far is done.
  virtual Event record() = 0;
  /// The same, and seconds() may be asked of it: costs more on some devices.
  virtual Event record_time() { return record(); }
  /// What is queued from now on starts after `event`. Returns at once on an asynchronous stream; on an inline stream
  /// the caller waits here, and an error that stopped the event's stream is rethrown.
  virtual void wait(const Event& event) = 0;
  /// Blocks the caller until everything queued is done; rethrows the first error of a task.
  virtual void synchronize() = 0;
  /// Queues host work (an MPI call, say). After a task threw, later tasks are dropped and every wait rethrows its
  /// error.
  virtual void enqueue(std::function<void()> task) = 0;

  /// For tasks of this stream, and for the caller of an inline stream.
  virtual StreamClock& clock() = 0;
};

/// Runs work at once, in whoever calls; for work that belongs to no device. Any thread may call.
Stream& caller_stream();

/// A stream of host work: a queue served in order by one thread, which is started by the first task. For work that must
/// not wait in the queue of a device. Any thread may call.
std::unique_ptr<Stream> make_host_queue();

}  // namespace skrull
