#include <cstring>
#include <functional>
#include <utility>
#include <vector>

#include "skrull/comm/collective_checks.h"
#include "skrull/comm/communicator.h"
#include "skrull/core/error.h"
#include "skrull/device/ops.h"

namespace skrull {
namespace {

struct Copy {
  const void* source = nullptr;
  void* target = nullptr;
  std::int64_t bytes = 0;
};
/// Queues the copies; sources and targets do not overlap.
using QueueCopies = std::function<void(Stream&, std::vector<Copy>)>;

/// Each send with the receive that gets it.
std::vector<Copy> match(std::span<const Transfer> transfers) {
  std::vector<Copy> copies;
  auto receive = transfers.begin();
  for (const Transfer& send : transfers) {
    if (send.kind != Transfer::Kind::send) continue;
    while (receive != transfers.end() && receive->kind != Transfer::Kind::receive) ++receive;
    require(receive != transfers.end(), "an exchange with oneself sends {} bytes that nothing receives", send.bytes);
    require(receive->bytes == send.bytes, "an exchange with oneself sends {} bytes and receives {}", send.bytes,
            receive->bytes);
    if (send.bytes > 0) copies.push_back({send.data, receive->data, send.bytes});
    ++receive;
  }
  for (; receive != transfers.end(); ++receive) {
    require(receive->kind != Transfer::Kind::receive, "an exchange with oneself receives {} bytes that nothing sends",
            receive->bytes);
  }
  return copies;
}

void copy_on_host(Stream& stream, std::vector<Copy> copies) {
  stream.enqueue([copies = std::move(copies)] {
    for (const Copy& copy : copies) std::memmove(copy.target, copy.source, static_cast<std::size_t>(copy.bytes));
  });
}

class SelfCommunicator final : public Communicator {
 public:
  explicit SelfCommunicator(QueueCopies queue_copies) : queue_copies_(std::move(queue_copies)) {}

  int rank() const override { return 0; }
  int size() const override { return 1; }

  void all_reduce_sum(Stream& /*stream*/, TensorView buffer) override { check_reduce(buffer); }
  void all_reduce_max(Stream& /*stream*/, TensorView buffer) override { check_reduce(buffer); }

  void reduce_scatter_sum(Stream& stream, ConstTensorView send, TensorView receive,
                          std::span<const std::int64_t> counts) override {
    check_reduce_scatter(send, receive, counts, 0, 1);
    copy(stream, send, receive);
  }

  void all_gather(Stream& stream, ConstTensorView send, TensorView receive,
                  std::span<const std::int64_t> counts) override {
    check_all_gather(send, receive, counts, 0, 1);
    copy(stream, send, receive);
  }

  void broadcast(Stream& /*stream*/, TensorView buffer, int root) override { check_broadcast(buffer, root, 1); }

  void exchange(Stream& stream, std::span<const Transfer> transfers) override {
    check_exchange(transfers, 1);
    std::vector<Copy> copies = match(transfers);
    if (!copies.empty()) queue_copies_(stream, std::move(copies));
  }

  std::unique_ptr<Communicator> split(int /*color*/, int /*key*/) override {
    return std::make_unique<SelfCommunicator>(queue_copies_);
  }

 private:
  void copy(Stream& stream, ConstTensorView source, TensorView target) {
    if (source.data() == target.data() || source.empty()) return;
    queue_copies_(stream, {{source.data(), target.data(), source.elements() * size_of(source.dtype())}});
  }

  QueueCopies queue_copies_;
};

}  // namespace

std::unique_ptr<Communicator> make_self_communicator() {
  return std::make_unique<SelfCommunicator>(copy_on_host);
}

std::unique_ptr<Communicator> make_self_communicator(Ops& ops) {
  return std::make_unique<SelfCommunicator>([&ops](Stream& stream, const std::vector<Copy>& copies) {
    for (const Copy& copy : copies) {
      ops.cast(stream, {copy.source, DType::uint8, 1, copy.bytes}, {copy.target, DType::uint8, 1, copy.bytes});
    }
  });
}

}  // namespace skrull
