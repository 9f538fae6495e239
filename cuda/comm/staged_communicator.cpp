#include "comm/staged_communicator.h"

#include <algorithm>
#include <exception>
#include <numeric>
#include <utility>
#include <vector>

#include "device/cuda_check.h"
#include "device/cuda_stream.h"
#include "device/pinned_memory.h"
#include "skrull/comm/collective_checks.h"
#include "skrull/core/error.h"

namespace skrull {
namespace {

/// The piece `round` of every rank's part.
struct Round {
  std::vector<std::int64_t> counts;  ///< elements in it
  std::vector<std::int64_t> places;  ///< of the first one in the whole
  std::vector<std::int64_t> staged;  ///< and in the staging memory
  std::int64_t total = 0;
};

Round round_of(std::span<const std::int64_t> counts, std::int64_t round, std::int64_t piece) {
  Round result;
  std::int64_t begin = 0;
  for (const std::int64_t count : counts) {
    result.places.push_back(begin + std::min(count, round * piece));
    result.staged.push_back(result.total);
    result.counts.push_back(std::clamp<std::int64_t>(count - round * piece, 0, piece));
    result.total += result.counts.back();
    begin += count;
  }
  return result;
}

/// What an exchange sends to one rank, or receives from it, in its order: both ends cut it at the same places, whatever
/// else they exchange.
struct Traffic {
  Transfer::Kind kind;
  int peer;
  std::vector<Transfer> messages;
  std::int64_t bytes = 0;

  /// Calls part(data, place in the piece, bytes) for the memory of a piece of the whole.
  template <class Part>
  void for_parts(std::int64_t begin, std::int64_t count, const Part& part) const {
    std::int64_t first = 0;  // of the message, in the whole
    for (const Transfer& message : messages) {
      const std::int64_t from = std::max(begin, first);
      const std::int64_t to = std::min(begin + count, first + message.bytes);
      if (from < to) part(static_cast<char*>(message.data) + (from - first), from - begin, to - from);
      first += message.bytes;
    }
  }
};

std::vector<Traffic> traffic_of(std::span<const Transfer> transfers) {
  std::vector<Traffic> result;
  for (const Transfer& message : transfers) {
    auto found = std::find_if(result.begin(), result.end(),
                              [&](const Traffic& one) { return one.kind == message.kind && one.peer == message.peer; });
    if (found == result.end()) found = result.insert(result.end(), {message.kind, message.peer, {}, 0});
    found->messages.push_back(message);
    found->bytes += message.bytes;
  }
  return result;
}

char* bytes_at(void* data, std::int64_t elements, DType dtype) {
  return static_cast<char*>(data) + elements * size_of(dtype);
}
const char* bytes_at(const void* data, std::int64_t elements, DType dtype) {
  return static_cast<const char*>(data) + elements * size_of(dtype);
}

class StagedCommunicator final : public Communicator {
 public:
  StagedCommunicator(Device& device, std::unique_ptr<Communicator> host, std::int64_t piece_bytes)
      : device_(device), host_(std::move(host)), piece_bytes_(piece_bytes), staging_(piece_bytes) {
    require(piece_bytes_ >= 8 * host_->size(), "pieces of {} bytes for {} ranks", piece_bytes_, host_->size());
  }
  ~StagedCommunicator() override {
    // While an exception unwinds, tasks that wait for other ranks give up when their communicator goes.
    if (std::uncaught_exceptions() > exceptions_at_start_) host_.reset();
    try {
      last_.synchronize();  // tasks use the staging memory
    } catch (...) {         // whoever uses the stream next meets the error
    }
  }
  StagedCommunicator(const StagedCommunicator&) = delete;
  StagedCommunicator& operator=(const StagedCommunicator&) = delete;

  int rank() const override { return host_->rank(); }
  int size() const override { return host_->size(); }

  void all_reduce_sum(Stream& stream, TensorView buffer) override {
    all_reduce(stream, buffer, [&](const TensorView& piece) { host_->all_reduce_sum(stream, piece); });
  }
  void all_reduce_max(Stream& stream, TensorView buffer) override {
    all_reduce(stream, buffer, [&](const TensorView& piece) { host_->all_reduce_max(stream, piece); });
  }
  void reduce_scatter_sum(Stream& stream, ConstTensorView send, TensorView receive,
                          std::span<const std::int64_t> counts) override;
  void all_gather(Stream& stream, ConstTensorView send, TensorView receive,
                  std::span<const std::int64_t> counts) override;
  void broadcast(Stream& stream, TensorView buffer, int root) override;
  void exchange(Stream& stream, std::span<const Transfer> transfers) override;

  std::unique_ptr<Communicator> split(int color, int key) override {
    return make_staged_communicator(device_, host_->split(color, key), piece_bytes_);
  }

 private:
  template <class Reduce>
  void all_reduce(Stream& stream, const TensorView& buffer, const Reduce& reduce) {
    check_reduce(buffer);
    for_pieces(buffer, [&](char* data, std::int64_t count) {
      copy_out(stream, staging_.data(), data, count * size_of(buffer.dtype()));
      reduce(staged(buffer.dtype(), 0, count));
      copy_in(stream, data, staging_.data(), count * size_of(buffer.dtype()));
    });
    last_ = stream.record();
  }

  template <class Work>
  void for_pieces(const TensorView& buffer, const Work& work) {
    const std::int64_t piece = piece_bytes_ / size_of(buffer.dtype());
    for (std::int64_t begin = 0; begin < buffer.elements(); begin += piece) {
      work(bytes_at(buffer.data(), begin, buffer.dtype()), std::min(piece, buffer.elements() - begin));
    }
  }

  /// Calls work(round) for the rounds in which parts of these sizes go through the staging memory.
  template <class Work>
  void for_rounds(std::span<const std::int64_t> counts, DType dtype, const Work& work) {
    const std::int64_t piece = piece_bytes_ / size_of(dtype) / size();
    const std::int64_t longest = *std::max_element(counts.begin(), counts.end());
    for (std::int64_t round = 0; round * piece < longest; ++round) work(round_of(counts, round, piece));
  }

  TensorView staged(DType dtype, std::int64_t first, std::int64_t count) const {
    return {bytes_at(static_cast<void*>(staging_.data()), first, dtype), dtype, 1, count};
  }

  static void copy_out(Stream& stream, char* host, const char* data, std::int64_t bytes) {
    if (bytes == 0) return;
    SKRULL_CUDA_CHECK(
        cudaMemcpyAsync(host, data, static_cast<std::size_t>(bytes), cudaMemcpyDeviceToHost, cuda_stream(stream)));
  }
  static void copy_in(Stream& stream, char* data, const char* host, std::int64_t bytes) {
    if (bytes == 0) return;
    SKRULL_CUDA_CHECK(
        cudaMemcpyAsync(data, host, static_cast<std::size_t>(bytes), cudaMemcpyHostToDevice, cuda_stream(stream)));
  }

  Device& device_;
  std::unique_ptr<Communicator> host_;
  std::int64_t piece_bytes_;
  PinnedMemory staging_;
  Event last_;  ///< behind the last operation
  int exceptions_at_start_ = std::uncaught_exceptions();
};

void StagedCommunicator::reduce_scatter_sum(Stream& stream, ConstTensorView send, TensorView receive,
                                            std::span<const std::int64_t> counts) {
  check_reduce_scatter(send, receive, counts, rank(), size());
  const DType dtype = send.dtype();
  const auto own = static_cast<std::size_t>(rank());
  std::int64_t received = 0;
  for_rounds(counts, dtype, [&](const Round& round) {
    for (std::size_t part = 0; part < round.counts.size(); ++part) {
      copy_out(stream, bytes_at(static_cast<void*>(staging_.data()), round.staged[part], dtype),
               bytes_at(send.data(), round.places[part], dtype), round.counts[part] * size_of(dtype));
    }
    const TensorView sum = staged(dtype, round.staged[own], round.counts[own]);
    host_->reduce_scatter_sum(stream, staged(dtype, 0, round.total), sum, round.counts);
    copy_in(stream, bytes_at(receive.data(), received, dtype), static_cast<const char*>(sum.data()),
            sum.elements() * size_of(dtype));
    received += sum.elements();
  });
  last_ = stream.record();
}

void StagedCommunicator::all_gather(Stream& stream, ConstTensorView send, TensorView receive,
                                    std::span<const std::int64_t> counts) {
  check_all_gather(send, receive, counts, rank(), size());
  const DType dtype = send.dtype();
  const auto own = static_cast<std::size_t>(rank());
  std::int64_t sent = 0;
  for_rounds(counts, dtype, [&](const Round& round) {
    const TensorView mine = staged(dtype, round.staged[own], round.counts[own]);
    copy_out(stream, static_cast<char*>(mine.data()), bytes_at(send.data(), sent, dtype),
             mine.elements() * size_of(dtype));
    host_->all_gather(stream, mine, staged(dtype, 0, round.total), round.counts);
    for (std::size_t part = 0; part < round.counts.size(); ++part) {
      copy_in(stream, bytes_at(receive.data(), round.places[part], dtype),
              bytes_at(static_cast<const void*>(staging_.data()), round.staged[part], dtype),
              round.counts[part] * size_of(dtype));
    }
    sent += mine.elements();
  });
  last_ = stream.record();
}

void StagedCommunicator::broadcast(Stream& stream, TensorView buffer, int root) {
  check_broadcast(buffer, root, size());
  for_pieces(buffer, [&](char* data, std::int64_t count) {
    const std::int64_t bytes = count * size_of(buffer.dtype());
    if (rank() == root) copy_out(stream, staging_.data(), data, bytes);
    host_->broadcast(stream, staged(buffer.dtype(), 0, count), root);
    if (rank() != root) copy_in(stream, data, staging_.data(), bytes);
  });
  last_ = stream.record();
}

// An exchange is as many exchanges as its longest traffic has pieces: between two ranks they match in order.
void StagedCommunicator::exchange(Stream& stream, std::span<const Transfer> transfers) {
  check_exchange(transfers, size());
  const std::int64_t piece = piece_bytes_ / (2 * size());
  const std::vector<Traffic> traffic = traffic_of(transfers);
  std::int64_t longest = 0;
  for (const Traffic& one : traffic) longest = std::max(longest, one.bytes);
  for (std::int64_t begin = 0; begin < longest; begin += piece) {
    std::vector<Transfer> pieces;
    for (std::size_t i = 0; i < traffic.size(); ++i) {
      const Traffic& one = traffic[i];
      const std::int64_t bytes = std::clamp<std::int64_t>(one.bytes - begin, 0, piece);
      if (bytes == 0) continue;
      char* place = staging_.data() + static_cast<std::int64_t>(i) * piece;
      pieces.push_back({one.kind, one.peer, place, bytes});
      if (one.kind != Transfer::Kind::send) continue;
      one.for_parts(begin, bytes, [&](const char* data, std::int64_t at, std::int64_t count) {
        copy_out(stream, place + at, data, count);
      });
    }
    host_->exchange(stream, pieces);
    for (std::size_t i = 0; i < traffic.size(); ++i) {
      const Traffic& one = traffic[i];
      if (one.kind != Transfer::Kind::receive) continue;
      const char* place = staging_.data() + static_cast<std::int64_t>(i) * piece;
      one.for_parts(begin, std::clamp<std::int64_t>(one.bytes - begin, 0, piece),
                    [&](char* data, std::int64_t at, std::int64_t count) { copy_in(stream, data, place + at, count); });
    }
  }
  last_ = stream.record();
}

}  // namespace

std::unique_ptr<Communicator> make_staged_communicator(Device& device, std::unique_ptr<Communicator> host,
                                                       std::int64_t piece_bytes) {
  if (host->size() == 1) return make_self_communicator(device.ops());
  return std::make_unique<StagedCommunicator>(device, std::move(host), piece_bytes);
}

}  // namespace skrull
