#include "skrull/comm/communicator.h"
#include "skrull/core/narrow.h"

namespace skrull {
namespace {

struct InvalidInputTogether final : InvalidInput, FailedTogether {
  using InvalidInput::InvalidInput;
};
struct RunFailureTogether final : RunFailure, FailedTogether {
  using RunFailure::RunFailure;
};

template <class T>
TensorView view_of(T& value) {
  return {&value, dtype_of<T>, 1, 1};
}

// The stream runs the operation elsewhere: the value must stay until then.
void finish(Stream& stream) {
  stream.record().synchronize();
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

void ControlChannel::barrier() {
  sum(std::int64_t{0});
}

void ControlChannel::agree_or_throw(const std::string& problem, int exit_code) {
  // The maximum finds the lowest rank with a problem, and 0 that there is none.
  const int claim = problem.empty() ? 0 : size() - rank();
  const auto first = narrow<int>(max(static_cast<std::int64_t>(claim)));
  if (first == 0) return;
  const int root = size() - first;
  const std::string message = broadcast(problem, root);
  const bool users_fault =
      max(std::int64_t{rank() == root && exit_code == static_cast<int>(ExitCode::invalid_input)}) != 0;
  if (users_fault) throw InvalidInputTogether(message);
  throw RunFailureTogether(message);
}

}  // namespace skrull
