#include "comm/nccl_communicator.h"

#include <nccl.h>

#include <algorithm>
#include <deque>
#include <exception>
#include <utility>

#include "skrull/comm/collective_checks.h"
#include "skrull/core/activity.h"
#include "skrull/core/backoff.h"
#include "skrull/core/error.h"

namespace skrull {
namespace {

ncclDataType_t reducible_type(DType dtype) {
  switch (dtype) {
    case DType::float32:
      return ncclFloat32;
    case DType::float64:
      return ncclFloat64;
    default:  // checked before
      return ncclInt64;
  }
}

bool all_equal(std::span<const std::int64_t> counts) {
  return std::adjacent_find(counts.begin(), counts.end(), std::not_equal_to<>()) == counts.end();
}

/// The first error of several calls.
class FirstError {
 public:
  void operator()(ncclResult_t result) {
    if (result_ == ncclSuccess || result_ == ncclInProgress) result_ = result == ncclSuccess ? result_ : result;
  }
  ncclResult_t result() const { return result_; }

 private:
  ncclResult_t result_ = ncclSuccess;
};

class NcclCommunicator final : public Communicator, private CudaWatcher {
 public:
  NcclCommunicator(CudaDevice& device, std::unique_ptr<Communicator> host, double timeout_seconds);
  ~NcclCommunicator() override;
  NcclCommunicator(const NcclCommunicator&) = delete;
  NcclCommunicator& operator=(const NcclCommunicator&) = delete;

  int rank() const override { return host_->rank(); }
  int size() const override { return host_->size(); }

  void all_reduce_sum(Stream& stream, TensorView buffer) override { all_reduce(stream, ncclSum, buffer); }
  void all_reduce_max(Stream& stream, TensorView buffer) override { all_reduce(stream, ncclMax, buffer); }
  void reduce_scatter_sum(Stream& stream, ConstTensorView send, TensorView receive,
                          std::span<const std::int64_t> counts) override;
  void all_gather(Stream& stream, ConstTensorView send, TensorView receive,
                  std::span<const std::int64_t> counts) override;
  void broadcast(Stream& stream, TensorView buffer, int root) override;
  void exchange(Stream& stream, std::span<const Transfer> transfers) override;

  std::unique_ptr<Communicator> split(int color, int key) override {
    return make_nccl_communicator(device_, host_->split(color, key), timeout_seconds_);
  }

 private:
  /// An operation that the stream has not passed yet.
  struct Pending {
    const char* operation;
    Event begun;
    Event done;
  };

  void all_reduce(Stream& stream, ncclRedOp_t op, TensorView buffer);
  /// Queues what `calls(error)` makes as one operation.
  template <class Calls>
  void queue(Stream& stream, const char* operation, const Calls& calls);

  void look() override;
  void finish(ncclResult_t result, const char* operation);
  [[noreturn]] void fail(const char* operation, const std::string& reason);
  void abort() noexcept;

  CudaDevice& device_;
  std::unique_ptr<Communicator> host_;
  double timeout_seconds_;
  ncclComm_t comm_ = nullptr;
  std::deque<Pending> pending_;
  Backoff since_last_done_;  ///< of the first pending operation: since it was seen to have begun
  int exceptions_at_start_ = std::uncaught_exceptions();
};

NcclCommunicator::NcclCommunicator(CudaDevice& device, std::unique_ptr<Communicator> host, double timeout_seconds)
    : device_(device), host_(std::move(host)), timeout_seconds_(timeout_seconds) {
  ncclUniqueId id{};
  ControlChannel(*host_).run_together([&] {
    if (rank() != 0) return;
    const ncclResult_t result = ncclGetUniqueId(&id);
    require(result == ncclSuccess, "NCCL cannot start: {}: {}", ncclGetErrorString(result), ncclGetLastError(nullptr));
  });
  host_->broadcast(caller_stream(), {id.internal, DType::uint8, 1, sizeof(id.internal)}, 0);
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;  // so that nothing waits longer than the time-out
  try {
    finish(ncclCommInitRankConfig(&comm_, size(), id, rank(), &config), "start of NCCL");
  } catch (...) {
    abort();
    throw;
  }
  device_.progress().add(*this);
}

NcclCommunicator::~NcclCommunicator() {
  device_.progress().remove(*this);
  if (comm_ == nullptr) return;
  try {
    const bool unwinds = std::uncaught_exceptions() > exceptions_at_start_;
    if (unwinds || device_.progress().failed()) {
      abort();
      return;
    }
    if (!pending_.empty()) pending_.back().done.synchronize();
    finish(ncclCommFinalize(comm_), "end of NCCL");
    ncclCommDestroy(comm_);
  } catch (...) {  // finish() has aborted it
    abort();
  }
}

void NcclCommunicator::abort() noexcept {
  if (comm_ != nullptr) ncclCommAbort(std::exchange(comm_, nullptr));
}

void NcclCommunicator::fail(const char* operation, const std::string& reason) {
  const char* detail = comm_ != nullptr ? ncclGetLastError(comm_) : "";
  std::string message =
      fmt::format("{} over NCCL ({}) failed on rank {} of {}: {}", operation, activity(), rank(), size(), reason);
  if (detail != nullptr && *detail != '\0') message += fmt::format(" ({})", detail);
  abort();
  throw RunFailure(message);
}

/// Calls of a non-blocking communicator may go on behind the caller's back, and must be over before the next one.
void NcclCommunicator::finish(ncclResult_t result, const char* operation) {
  const Backoff waited;
  while (result == ncclInProgress) {
    if (timeout_seconds_ > 0 && waited.idle_seconds() > timeout_seconds_) {
      fail(operation, fmt::format("other ranks did not come within {} s (timeout_seconds)", timeout_seconds_));
    }
    waited.pause();
    if (const ncclResult_t asked = ncclCommGetAsyncError(comm_, &result); asked != ncclSuccess) result = asked;
  }
  if (result != ncclSuccess) fail(operation, ncclGetErrorString(result));
}

void NcclCommunicator::look() {
  if (comm_ == nullptr) return;
  ncclResult_t state = ncclSuccess;
  if (const ncclResult_t asked = ncclCommGetAsyncError(comm_, &state); asked != ncclSuccess) state = asked;
  const char* operation = pending_.empty() ? "work" : pending_.front().operation;
  if (state != ncclSuccess && state != ncclInProgress) fail(operation, ncclGetErrorString(state));
  bool moved = false;
  while (!pending_.empty() && pending_.front().done.reached()) {
    pending_.pop_front();
    moved = true;
  }
  if (moved || pending_.empty() || !pending_.front().begun.reached()) since_last_done_.reset();
  if (timeout_seconds_ > 0 && since_last_done_.idle_seconds() > timeout_seconds_) {
    fail(operation, fmt::format("it did not end within {} s (timeout_seconds): another rank hangs, was stopped, or is "
                                "much slower than this one",
                                timeout_seconds_));
  }
}

template <class Calls>
void NcclCommunicator::queue(Stream& stream, const char* operation, const Calls& calls) {
  require(comm_ != nullptr, "{} over NCCL after it was aborted", operation);
  while (!pending_.empty() && pending_.front().done.reached()) pending_.pop_front();
  if (pending_.empty()) since_last_done_.reset();
  Event begun = stream.record();
  FirstError error;
  error(ncclGroupStart());
  calls(error);
  error(ncclGroupEnd());
  finish(error.result(), operation);
  pending_.push_back({operation, std::move(begun), stream.record()});
}

void NcclCommunicator::all_reduce(Stream& stream, ncclRedOp_t op, TensorView buffer) {
  check_reduce(buffer);
  if (buffer.empty()) return;
  queue(stream, "all-reduce", [&](FirstError& error) {
    error(ncclAllReduce(buffer.data(), buffer.data(), static_cast<std::size_t>(buffer.elements()),
                        reducible_type(buffer.dtype()), op, comm_, cuda_stream(stream)));
  });
}

void NcclCommunicator::reduce_scatter_sum(Stream& stream, ConstTensorView send, TensorView receive,
                                          std::span<const std::int64_t> counts) {
  check_reduce_scatter(send, receive, counts, rank(), size());
  if (send.empty()) return;
  const ncclDataType_t type = reducible_type(send.dtype());
  queue(stream, "reduce-scatter", [&](FirstError& error) {
    if (all_equal(counts)) {
      return error(ncclReduceScatter(send.data(), receive.data(), static_cast<std::size_t>(counts.front()), type,
                                     ncclSum, comm_, cuda_stream(stream)));
    }
    const auto* part = static_cast<const char*>(send.data());
    for (int root = 0; root < size(); ++root) {
      const std::int64_t count = counts[static_cast<std::size_t>(root)];
      if (count == 0) continue;
      error(ncclReduce(part, root == rank() ? receive.data() : nullptr, static_cast<std::size_t>(count), type, ncclSum,
                       root, comm_, cuda_stream(stream)));
      part += count * size_of(send.dtype());
    }
  });
}

void NcclCommunicator::all_gather(Stream& stream, ConstTensorView send, TensorView receive,
                                  std::span<const std::int64_t> counts) {
  check_all_gather(send, receive, counts, rank(), size());
  if (receive.empty()) return;
  const std::int64_t element = size_of(send.dtype());
  queue(stream, "all-gather", [&](FirstError& error) {
    if (all_equal(counts)) {
      return error(ncclAllGather(send.data(), receive.data(), static_cast<std::size_t>(counts.front() * element),
                                 ncclUint8, comm_, cuda_stream(stream)));
    }
    auto* part = static_cast<char*>(receive.data());
    for (int root = 0; root < size(); ++root) {
      const std::int64_t bytes = counts[static_cast<std::size_t>(root)] * element;
      if (bytes == 0) continue;
      error(ncclBroadcast(root == rank() ? send.data() : part, part, static_cast<std::size_t>(bytes), ncclUint8, root,
                          comm_, cuda_stream(stream)));
      part += bytes;
    }
  });
}

void NcclCommunicator::broadcast(Stream& stream, TensorView buffer, int root) {
  check_broadcast(buffer, root, size());
  if (buffer.empty()) return;
  queue(stream, "broadcast", [&](FirstError& error) {
    error(ncclBroadcast(buffer.data(), buffer.data(),
                        static_cast<std::size_t>(buffer.elements() * size_of(buffer.dtype())), ncclUint8, root, comm_,
                        cuda_stream(stream)));
  });
}

void NcclCommunicator::exchange(Stream& stream, std::span<const Transfer> transfers) {
  check_exchange(transfers, size());
  const bool nothing = std::all_of(transfers.begin(), transfers.end(), [](const Transfer& t) { return t.bytes == 0; });
  if (nothing) return;
  queue(stream, "exchange", [&](FirstError& error) {
    for (const Transfer& transfer : transfers) {
      const auto bytes = static_cast<std::size_t>(transfer.bytes);
      if (bytes == 0) continue;
      error(transfer.kind == Transfer::Kind::send
                ? ncclSend(transfer.data, bytes, ncclUint8, transfer.peer, comm_, cuda_stream(stream))
                : ncclRecv(transfer.data, bytes, ncclUint8, transfer.peer, comm_, cuda_stream(stream)));
    }
  });
}

}  // namespace

std::string nccl_version() {
  int version = 0;
  ncclGetVersion(&version);
  return fmt::format("{}.{}.{}", version / 10000, version / 100 % 100, version % 100);
}

std::unique_ptr<Communicator> make_nccl_communicator(CudaDevice& device, std::unique_ptr<Communicator> host,
                                                     double timeout_seconds) {
  if (host->size() == 1) return make_self_communicator(device.ops());
  return std::make_unique<NcclCommunicator>(device, std::move(host), timeout_seconds);
}

}  // namespace skrull
