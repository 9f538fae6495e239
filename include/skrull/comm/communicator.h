#pragma once
// Collectives between ranks, ordered by a stream: a call queues the operation and returns at once, as NCCL's do. Every
// rank of a communicator must queue the same collectives in the same order.

#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "skrull/core/explain.h"
#include "skrull/core/tensor.h"
#include "skrull/device/stream.h"

namespace skrull {

class Ops;

/// One message of an exchange with another rank of the same communicator. Contiguous memory, owned by the caller until
/// the stream has passed.
struct Transfer {
  enum class Kind { send, receive };
  Kind kind = Kind::send;
  int peer = 0;
  void* data = nullptr;
  std::int64_t bytes = 0;
};

class Communicator {
 public:
  virtual ~Communicator() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;

  /// buffer = sum over ranks. float32, float64 or int64; contiguous. All ranks hold the same bits. Over MPI each
  /// element is summed in ascending rank order on one rank and then spread: the same bits as reduce_scatter_sum()
  /// gives. NCCL chooses its own order, the same one in every run on the same machines.
  virtual void all_reduce_sum(Stream& stream, TensorView buffer) = 0;
  /// buffer = element-wise maximum over ranks. float32, float64 or int64; contiguous.
  virtual void all_reduce_max(Stream& stream, TensorView buffer) = 0;
  /// `send` holds sum(counts) elements; rank i receives the sum over ranks of its counts[i] elements. Over MPI
  /// summed in ascending rank order. `receive` may lie inside `send` at its place; what `send` holds elsewhere stays.
  virtual void reduce_scatter_sum(Stream& stream, ConstTensorView send, TensorView receive,
                                  std::span<const std::int64_t> counts) = 0;
  /// Rank i contributes counts[i] elements; `receive` holds all of them in rank order. `send` may lie inside `receive`
  /// at its place.
  virtual void all_gather(Stream& stream, ConstTensorView send, TensorView receive,
                          std::span<const std::int64_t> counts) = 0;
  virtual void broadcast(Stream& stream, TensorView buffer, int root) = 0;
  /// All transfers at once, in one group; between two ranks messages match in list order. Empty lists are fine.
  virtual void exchange(Stream& stream, std::span<const Transfer> transfers) = 0;

  /// Ranks with equal `color` (>= 0) form a new communicator, ordered by `key`. Collective; host-synchronous: nothing
  /// of this communicator may be queued or running meanwhile.
  virtual std::unique_ptr<Communicator> split(int color, int key) = 0;
};

/// The communicator of one rank alone, over host memory: everything is a copy or nothing.
std::unique_ptr<Communicator> make_self_communicator();
/// Over the memory of the device whose operations these are; they must outlive it.
std::unique_ptr<Communicator> make_self_communicator(Ops& ops);

/// Mixed into what agree_or_throw() throws: every rank throws it at the same place, so main() reports it once (rank 0)
/// and lets MPI end as usual. Any other error is this rank's alone (MpiSession::abort).
class FailedTogether {
 public:
  virtual ~FailedTogether() = default;
};
inline bool failed_together(const std::exception& error) {
  return dynamic_cast<const FailedTogether*>(&error) != nullptr;
}

/// How work ended on this rank.
struct WorkOutcome {
  std::string problem;  ///< empty when nothing went wrong
  int exit_code = 0;
};
/// Runs `work` and keeps what it throws.
template <class Work>
WorkOutcome outcome_of(Work&& work);

/// Host values agreed between ranks (counts, flags, plans, error texts): small blocking calls over a communicator of
/// host memory, run on the communication stream so that they keep its one global order.
class ControlChannel {
 public:
  /// Both must outlive this.
  ControlChannel(Communicator& communicator, Stream& stream) : communicator_(communicator), stream_(stream) {}
  /// Before there is a device: calls run in the caller.
  explicit ControlChannel(Communicator& communicator);
  int rank() const { return communicator_.rank(); }
  int size() const { return communicator_.size(); }
  std::int64_t sum(std::int64_t value);
  double sum(double value);
  std::int64_t max(std::int64_t value);
  double max(double value);
  /// Each value's sum, in place.
  void sum(std::span<double> values);
  /// Root's text on every rank.
  std::string broadcast(const std::string& text, int root = 0);
  /// The texts of all ranks, in rank order, on every rank.
  std::vector<std::string> gather(const std::string& text);
  void barrier();
  /// `problem` is empty or what went wrong on this rank (with its exit code). When any rank has a problem, every rank
  /// throws the first one's (lowest rank, which is named unless it is rank 0) as InvalidInput, RunFailure or Stopped by
  /// its code. Collective: this is how ranks fail together.
  void agree_or_throw(const std::string& problem, int exit_code);
  /// Runs `work`, which must not use collectives, and returns its result; when it throws on any rank, all ranks throw
  /// as by agree_or_throw(). It may call agree_or_throw(), as often on every rank that does not fail: what ends it on
  /// all ranks passes through, and a rank that fails meets the others there.
  template <class Work>
  auto run_together(Work&& work);
  /// For work of rank 0 that may take long: runs it on a thread of its own, while all ranks meet several times a
  /// second, so that no collective stays open meanwhile. When `stop_wanted` says true on any rank, `cancel` is called
  /// on rank 0, which should make the work end soon. The result on every rank; what the work throws, all ranks throw.
  std::string run_on_root(const std::function<std::string()>& work, const std::function<bool()>& stop_wanted,
                          const std::function<void()>& cancel);

 private:
  Communicator& communicator_;
  Stream& stream_;
};

template <class Work>
WorkOutcome outcome_of(Work&& work) {
  try {
    std::forward<Work>(work)();
    return {};
  } catch (const std::exception& error) {
    const std::string problem = explain(error);
    return {problem.empty() ? "unknown error" : problem, static_cast<int>(exit_code_of(error))};
  }
}

template <class Work>
auto ControlChannel::run_together(Work&& work) {
  using Result = decltype(work());
  std::optional<std::conditional_t<std::is_void_v<Result>, bool, Result>> result;
  std::exception_ptr ended_together;
  const WorkOutcome outcome = outcome_of([&] {
    try {
      if constexpr (std::is_void_v<Result>) {
        work();
      } else {
        result.emplace(work());
      }
    } catch (const FailedTogether&) {
      ended_together = std::current_exception();
    }
  });
  if (ended_together) std::rethrow_exception(ended_together);
  agree_or_throw(outcome.problem, outcome.exit_code);
  if constexpr (!std::is_void_v<Result>) return std::move(*result);
}

}  // namespace skrull
