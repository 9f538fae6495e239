#include "simt/stand_in/executor.h"

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <utility>

#include "simt/simt.h"
#include "simt/stand_in/device_memory.h"

namespace skrull::simt {
namespace {

constexpr std::chrono::milliseconds patience{1};
constexpr std::chrono::microseconds pause{20};
constexpr std::uint64_t longest_burst_log = 12;

/// Ranks of one run draw different orders.
std::uint64_t rank_of_process() {
  const char* rank = std::getenv("OMPI_COMM_WORLD_RANK");
  return rank != nullptr ? std::strtoull(rank, nullptr, 10) : 0;
}

}  // namespace

struct Executor::Stream {
  std::deque<Step> steps;
  std::uint64_t queued = 0;
  std::uint64_t finished = 0;
  bool destroyed = false;
};

Executor& Executor::instance() {
  static Executor* const executor = new Executor();  // threads may use it until the process ends
  return *executor;
}

Executor::Executor() : thread_([this] { work(); }) {}

cudaStream_t Executor::create_stream() {
  const std::lock_guard lock(mutex_);
  streams_.push_back(std::make_unique<Stream>());
  return reinterpret_cast<cudaStream_t>(streams_.back().get());
}

// Streams stay until the process ends: questions about them may be open.
void Executor::destroy_stream(cudaStream_t stream) {
  const std::lock_guard lock(mutex_);
  as_stream(stream).destroyed = true;
}

bool Executor::queue(cudaStream_t stream, Step step) {
  const std::lock_guard lock(mutex_);
  if (as_stream(stream).destroyed) return false;
  if (!error_.empty()) return true;
  as_stream(stream).steps.push_back(std::move(step));
  ++as_stream(stream).queued;
  ++queued_;
  last_queued_ = std::chrono::steady_clock::now();
  work_changed_.notify_all();
  return true;
}

std::function<bool()> Executor::all_done(cudaStream_t stream) {
  const std::lock_guard lock(mutex_);
  if (stream == nullptr) return [this, target = queued_] { return finished_ >= target; };
  return [&state = as_stream(stream), target = as_stream(stream).queued] { return state.finished >= target; };
}

void Executor::wait_for(const std::function<bool()>& done) {
  std::unique_lock lock(mutex_);
  waiting_.push_back(&done);
  work_changed_.notify_all();
  advanced_.wait(lock, [&] { return done() || !error_.empty(); });
  std::erase(waiting_, &done);
}

bool Executor::ask(const std::function<bool()>& done) {
  const std::lock_guard lock(mutex_);
  if (done()) return true;
  asked_ = done;
  work_changed_.notify_all();
  return false;
}

std::string Executor::error() {
  const std::lock_guard lock(mutex_);
  return error_;
}

bool Executor::is_wanted() const {
  if (asked_ && !asked_()) return true;
  for (const auto* done : waiting_) {
    if (!(*done)()) return true;
  }
  return std::chrono::steady_clock::now() - last_queued_ >= patience;
}

void Executor::work() {
  std::unique_lock lock(mutex_);
  while (true) {
    if (queued_ == finished_ || !is_wanted()) {
      rest(lock);
    } else {
      run_front(*pick(), lock);
    }
  }
}

void Executor::rest(std::unique_lock<std::mutex>& lock) {
  DeviceMemory::instance().set_open(false);
  if (queued_ == finished_) {
    work_changed_.wait(lock);
  } else {
    work_changed_.wait_until(lock, last_queued_ + patience);
  }
}

// Bursts of very different lengths: one stream may run far ahead of another.
Executor::Stream* Executor::pick() {
  if (burst_ != nullptr && burst_steps_ > 0 && !burst_->steps.empty()) {
    --burst_steps_;
    return burst_;
  }
  std::vector<Stream*> ready;
  for (const auto& stream : streams_) {
    if (!stream->steps.empty()) ready.push_back(stream.get());
  }
  burst_ = ready[draw(ready.size())];
  burst_steps_ = std::uint64_t{1} << draw(longest_burst_log);
  return burst_;
}

void Executor::run_front(Stream& stream, std::unique_lock<std::mutex>& lock) {
  const Step& step = stream.steps.front();
  lock.unlock();
  bool done = false;
  std::string error;
  try {
    DeviceMemory::instance().set_open(step.uses_device_memory);
    done = step.advance();
  } catch (const std::exception& failure) {
    error = failure.what();
  }
  if (done) refused_ = 0;
  if (!done && ++refused_ % 16 == 0) std::this_thread::sleep_for(pause);
  lock.lock();
  if (!error.empty()) {
    std::fprintf(stderr, "error on the device: %s\n", error.c_str());
    error_ = error;
    for (const auto& other : streams_) other->steps.clear();
    queued_ = finished_;
    burst_ = nullptr;
  } else if (done) {
    stream.steps.pop_front();
    ++stream.finished;
    ++finished_;
    if (stream.steps.empty()) burst_ = nullptr;  // it must not be the first again just for having been the last
  } else {
    burst_ = nullptr;
  }
  if (done || !error_.empty()) advanced_.notify_all();
}

// Splitmix64.
std::uint64_t Executor::draw(std::uint64_t bound) {
  if (const std::uint64_t seed = options().seed; seed != seed_) {
    seed_ = seed;
    random_state_ = seed * 0xD1342543DE82EF95u + rank_of_process() * 0x632BE59BD9B4E019u;
  }
  std::uint64_t z = (random_state_ += 0x9E3779B97F4A7C15u);
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return (z ^ (z >> 31)) % bound;
}

}  // namespace skrull::simt
