#include <chrono>
#include <future>
#include <numeric>
#include <thread>
#include <utility>

#include "skrull/comm/communicator.h"
#include "skrull/core/narrow.h"
#include "skrull/core/process.h"

namespace skrull {
namespace {

struct InvalidInputTogether final : InvalidInput, FailedTogether {
  using InvalidInput::InvalidInput;
};
struct RunFailureTogether final : RunFailure, FailedTogether {
  using RunFailure::RunFailure;
};

struct StoppedTogether final : Stopped, FailedTogether {
  using Stopped::Stopped;
};

/// Between two meetings of run_on_root().
constexpr std::chrono::milliseconds meeting_interval{20};

template <class T>
TensorView view_of(T& value) {
  return {&value, dtype_of<T>, 1, 1};
}

// The stream runs the operation elsewhere: the value must stay until then.
void finish(Stream& stream) {
  stream.record().synchronize();
}

/// Rank 0 has no such problem: it has to do with this rank.
std::string about_this_rank(int rank, const std::string& problem) {
  return fmt::format("rank {} on {}: {}", rank, host_name(), problem);
}

}  // namespace

ControlChannel::ControlChannel(Communicator& communicator) : ControlChannel(communicator, caller_stream()) {}

std::int64_t ControlChannel::sum(std::int64_t value) {
  communicator_.all_reduce_sum(stream_, view_of(value));
  finish(stream_);
  return value;
}

double ControlChannel::sum(double value) {
  communicator_.all_reduce_sum(stream_, view_of(value));
  finish(stream_);
  return value;
}

void ControlChannel::sum(std::span<double> values) {
  communicator_.all_reduce_sum(stream_, {values.data(), DType::float64, 1, static_cast<std::int64_t>(values.size())});
  finish(stream_);
}

std::int64_t ControlChannel::max(std::int64_t value) {
  communicator_.all_reduce_max(stream_, view_of(value));
  finish(stream_);
  return value;
}

double ControlChannel::max(double value) {
  communicator_.all_reduce_max(stream_, view_of(value));
  finish(stream_);
  return value;
}

std::string ControlChannel::broadcast(const std::string& text, int root) {
  auto length = static_cast<std::int64_t>(text.size());
  communicator_.broadcast(stream_, view_of(length), root);
  finish(stream_);
  std::string result = rank() == root ? text : std::string(static_cast<std::size_t>(length), '\0');
  communicator_.broadcast(stream_, {result.data(), DType::uint8, 1, length}, root);
  finish(stream_);
  return result;
}

std::vector<std::string> ControlChannel::gather(const std::string& text) {
  const auto ranks = static_cast<std::size_t>(size());
  std::vector<std::int64_t> lengths(ranks);
  auto length = static_cast<std::int64_t>(text.size());
  const auto one_each = std::vector<std::int64_t>(ranks, 1);
  communicator_.all_gather(stream_, view_of(length), {lengths.data(), DType::int64, 1, size()}, one_each);
  finish(stream_);
  std::string all(static_cast<std::size_t>(std::accumulate(lengths.begin(), lengths.end(), std::int64_t{0})), '\0');
  communicator_.all_gather(stream_, {text.data(), DType::uint8, 1, length},
                           {all.data(), DType::uint8, 1, static_cast<std::int64_t>(all.size())}, lengths);
  finish(stream_);
  std::vector<std::string> texts;
  std::size_t begin = 0;
  for (const std::int64_t part : lengths) {
    texts.push_back(all.substr(begin, static_cast<std::size_t>(part)));
    begin += static_cast<std::size_t>(part);
  }
  return texts;
}

std::string ControlChannel::run_on_root(const std::function<std::string()>& work,
                                        const std::function<bool()>& stop_wanted, const std::function<void()>& cancel) {
  std::future<std::string> result;
  if (rank() == 0) result = std::async(std::launch::async, work);
  for (bool cancelled = false;;) {
    const bool busy = result.valid() && result.wait_for(meeting_interval) != std::future_status::ready;
    // Who has nothing to do comes later than rank 0: it mostly finds the others' messages there.
    if (rank() != 0) std::this_thread::sleep_for(meeting_interval);
    const bool someone_stops = max(std::int64_t{stop_wanted()}) != 0;
    if (max(std::int64_t{busy}) == 0) break;
    if (someone_stops && rank() == 0 && !std::exchange(cancelled, true)) cancel();
  }
  return broadcast(run_together([&] { return rank() == 0 ? result.get() : std::string(); }));
}

void ControlChannel::barrier() {
  sum(std::int64_t{0});
}

void ControlChannel::agree_or_throw(const std::string& problem, int exit_code) {
  // The maximum finds the lowest rank with a problem, and 0 that there is none.
  const int claim = problem.empty() ? 0 : size() - rank();
  const auto first = narrow<int>(max(static_cast<std::int64_t>(claim)));
  if (first == 0) return;
  const int root = size() - first;
  const std::string message = broadcast(root == 0 ? problem : about_this_rank(rank(), problem), root);
  const auto code = static_cast<ExitCode>(max(static_cast<std::int64_t>(rank() == root ? exit_code : 0)));
  if (code == ExitCode::invalid_input) throw InvalidInputTogether(message);
  if (code == ExitCode::stopped_by_signal) throw StoppedTogether(message);
  throw RunFailureTogether(message);
}

}  // namespace skrull
