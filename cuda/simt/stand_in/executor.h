#pragma once
// Streams on the CPU. A stream is a queue of steps, and one thread carries out the steps of all streams: LATE, and in
// an order drawn by simt::options().seed that respects nothing but the order within a stream and events that are waited
// for. It works only while the host waits for something (or asks whether it is done), or when no step was queued for a
// millisecond: then the host may be waiting elsewhere, in MPI say. So where a wait is missing, values are wrong under
// some seed. After an error nothing runs any more, and every call answers with it, as a GPU does.

#include <cuda_runtime_api.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

namespace skrull::simt {

/// One step of a stream.
struct Step {
  /// Returns true when the step is done; otherwise it is called again later, and other streams go on meanwhile.
  std::function<bool()> advance;
  /// Host tasks may not touch the device's memory; all else may.
  bool uses_device_memory = true;
};

/// An event at one place of a stream. Recording the event again, perhaps on another stream, does not change it: who
/// waits for it, waits for what it meant then.
struct EventRecord {
  std::atomic<bool> reached{false};
  std::chrono::steady_clock::time_point when;
};

/// What an event is, beyond its handle.
struct EventState {
  explicit EventState(bool with_time) : timed(with_time) {}
  bool reached() const { return !latest || latest->reached; }

  const bool timed;
  std::shared_ptr<EventRecord> latest;  ///< what questions are about; none before it was recorded
};

class Executor {
 public:
  /// Of the process; never destroyed.
  static Executor& instance();

  cudaStream_t create_stream();
  /// What is queued on it is still done; nothing can be queued any more.
  void destroy_stream(cudaStream_t stream);

  /// False when the stream was destroyed.
  bool queue(cudaStream_t stream, Step step);
  /// Whether everything queued before this call on the stream, or on all for nullptr, is done: for wait_for() and
  /// ask().
  std::function<bool()> all_done(cudaStream_t stream);
  /// Has the thread work until `done` (called by both threads, under a lock) or until an error.
  void wait_for(const std::function<bool()>& done);
  /// Tells whether `done`; if not, the thread works towards it.
  bool ask(const std::function<bool()>& done);

  /// What went wrong, for ever; empty if nothing did.
  std::string error();
  /// True in host tasks, which may not call CUDA.
  bool is_this_thread() const { return std::this_thread::get_id() == thread_.get_id(); }

 private:
  struct Stream;

  Executor();
  static Stream& as_stream(cudaStream_t stream) { return *reinterpret_cast<Stream*>(stream); }

  void work();
  bool is_wanted() const;
  void rest(std::unique_lock<std::mutex>& lock);
  Stream* pick();
  void run_front(Stream& stream, std::unique_lock<std::mutex>& lock);
  std::uint64_t draw(std::uint64_t bound);

  std::mutex mutex_;
  std::condition_variable work_changed_;  ///< something was queued, or is waited for
  std::condition_variable advanced_;
  std::vector<std::unique_ptr<Stream>> streams_;
  std::vector<const std::function<bool()>*> waiting_;
  std::function<bool()> asked_;
  std::uint64_t queued_ = 0;    ///< steps on all streams, ever
  std::uint64_t finished_ = 0;  ///< of these
  std::chrono::steady_clock::time_point last_queued_;
  std::string error_;
  std::optional<std::uint64_t> seed_;  ///< from which the state below was made
  std::uint64_t random_state_ = 0;
  std::size_t refused_ = 0;  ///< steps in a row that could not be done yet
  Stream* burst_ = nullptr;  ///< is carried on with, for so many steps
  std::uint64_t burst_steps_ = 0;
  std::thread thread_;  // last: it uses all of the above
};

}  // namespace skrull::simt
