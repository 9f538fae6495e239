#pragma once
// One MPI communicator, and the one place where this project waits for messages. Only messages between two ranks are
// used, so that the order of every sum is ours and not the MPI library's. All calls block the calling thread, which is
// the one that serves the stream.

#include <mpi.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "reduction.h"
#include "skrull/comm/communicator.h"
#include "skrull/comm/mpi_session.h"

namespace skrull {

/// Throws RunFailure with MPI's own text when `code` is an error.
void check_mpi(int code, const char* operation);

class PendingMessages;

class MpiGroup {
 public:
  /// Takes over `comm`, which is freed with the last user of this group (left to MPI's end after a failure).
  MpiGroup(MPI_Comm comm, const MessageLimits& limits);
  ~MpiGroup();
  MpiGroup(const MpiGroup&) = delete;
  MpiGroup& operator=(const MpiGroup&) = delete;

  MPI_Comm comm() const { return comm_; }
  int rank() const { return rank_; }
  int size() const { return size_; }
  /// The number of `rank` among all ranks of the program.
  int world_rank(int rank) const;
  const MessageLimits& limits() const { return limits_; }

  void all_reduce(ReduceOp op, TensorView buffer);
  void reduce_scatter(ReduceOp op, DType dtype, const char* send, char* receive, std::span<const std::int64_t> counts);
  void all_gather(std::int64_t element_bytes, const char* send, char* receive, std::span<const std::int64_t> counts);
  void broadcast(char* data, std::int64_t bytes, int root);
  void exchange(std::span<const Transfer> transfers);

  /// This rank has failed: whoever waits in this group gives up with a RunFailure. Any thread.
  void abandon() { abandoned_ = true; }
  bool abandoned() const { return abandoned_; }

 private:
  void reduce_gathered(ReduceOp op, TensorView buffer);

  MPI_Comm comm_;
  int rank_ = 0;
  int size_ = 1;
  MessageLimits limits_;
  std::unique_ptr<char[]> scratch_;  // contributions of the other ranks
  std::atomic<bool> abandoned_{false};
};

/// Messages under way. Long ones travel in pieces, so that waiting sees progress. Messages between two ranks match in
/// the order they were added.
class PendingMessages {
 public:
  explicit PendingMessages(MpiGroup& group) : group_(group) {}
  /// Memory must stay until wait() returned. Nothing happens for 0 bytes: both sides know the size.
  void send(int peer, const char* data, std::int64_t bytes);
  void receive(int peer, char* data, std::int64_t bytes);
  /// Returns when all are done. Throws RunFailure naming `operation` on an MPI error, when a message was shorter than
  /// expected, when the group was abandoned, or when nothing has come for the group's time-out (naming the ranks that
  /// did not come, and what this process is doing); messages may then still be under way.
  void wait(const char* operation);

 private:
  struct Message {
    int peer;
    int expected_bytes;  // -1 for a send
    bool done;
  };

  void add(MPI_Request request, int peer, int expected_bytes);
  void check_received(const Message& message, MPI_Status status, const char* operation) const;
  [[noreturn]] void fail_late(const char* operation) const;

  MpiGroup& group_;
  std::vector<MPI_Request> requests_;
  std::vector<Message> messages_;
};

/// The communicator over host memory. `group` has at least two ranks.
std::unique_ptr<Communicator> make_mpi_communicator(std::shared_ptr<MpiGroup> group);

}  // namespace skrull
