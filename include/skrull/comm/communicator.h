#pragma once
// Collectives between ranks, ordered by a stream: a call queues the operation and returns at once, as NCCL's do. Every
// rank of a communicator must queue the same collectives in the same order.

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "skrull/core/tensor.h"
#include "skrull/device/stream.h"

namespace skrull {

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

  /// buffer = sum over ranks. float32, float64 or int64; contiguous. Each element is summed in ascending rank order on
  /// one rank and then spread, so all ranks hold the same bits, and the same bits as reduce_scatter_sum() gives.
  virtual void all_reduce_sum(Stream& stream, TensorView buffer) = 0;
  /// buffer = element-wise maximum over ranks. float32, float64 or int64; contiguous.
  virtual void all_reduce_max(Stream& stream, TensorView buffer) = 0;
  /// `send` holds sum(counts) elements; rank i receives the sum over ranks of its counts[i] elements. Summed in
  /// ascending rank order.
  virtual void reduce_scatter_sum(Stream& stream, ConstTensorView send, TensorView receive,
                                  std::span<const std::int64_t> counts) = 0;
  /// Rank i contributes counts[i] elements; `receive` holds all of them in rank order. `send` may lie inside `receive`
  /// at its place.
  virtual void all_gather(Stream& stream, ConstTensorView send, TensorView receive,
                          std::span<const std::int64_t> counts) = 0;
  virtual void broadcast(Stream& stream, TensorView buffer, int root) = 0;
  /// All transfers at once, in one group; between two ranks messages match in list order. Empty lists are fine.
  virtual void exchange(Stream& stream, std::span<const Transfer> transfers) = 0;

  /// Ranks with equal `color` form a new communicator, ordered by `key`. Collective; host-synchronous.
  virtual std::unique_ptr<Communicator> split(int color, int key) = 0;
};

/// The communicator of one rank alone: everything is a copy or nothing.
std::unique_ptr<Communicator> make_self_communicator();

/// Host values agreed between ranks (counts, flags, plans, error texts): small blocking calls over a communicator of
/// host memory, run on the communication stream so that they keep its one global order.
class ControlChannel {
 public:
  /// Both must outlive this.
  ControlChannel(Communicator& communicator, Stream& stream) : communicator_(communicator), stream_(stream) {}
  int rank() const { return communicator_.rank(); }
  int size() const { return communicator_.size(); }
  std::int64_t sum(std::int64_t value);
  double sum(double value);
  std::int64_t max(std::int64_t value);
  double max(double value);
  /// Root's text on every rank.
  std::string broadcast(const std::string& text, int root = 0);
  void barrier();
  /// `problem` is empty or what went wrong on this rank (with its exit code). When any rank has a problem, every rank
  /// throws the first one's (lowest rank) as InvalidInput or RunFailure by its code. Collective: this is how ranks fail
  /// together.
  void agree_or_throw(const std::string& problem, int exit_code);

 private:
  Communicator& communicator_;
  Stream& stream_;
};

}  // namespace skrull
