#include <cstring>
#include <vector>

#include "collective_checks.h"
#include "skrull/comm/communicator.h"
#include "skrull/core/error.h"

namespace skrull {
namespace {

void copy_elements(Stream& stream, ConstTensorView source, TensorView target) {
  if (source.data() == target.data() || source.empty()) return;
  stream.enqueue([source, target] {
    std::memmove(target.data(), source.data(), static_cast<std::size_t>(source.elements() * size_of(source.dtype())));
  });
}

void copy_to_self(const std::vector<Transfer>& transfers) {
  auto receive = transfers.begin();
  for (const Transfer& send : transfers) {
    if (send.kind != Transfer::Kind::send) continue;
    while (receive != transfers.end() && receive->kind != Transfer::Kind::receive) ++receive;
    require(receive != transfers.end(), "an exchange with oneself sends {} bytes that nothing receives", send.bytes);
    require(receive->bytes == send.bytes, "an exchange with oneself sends {} bytes and receives {}", send.bytes,
            receive->bytes);
    if (send.bytes > 0) std::memmove(receive->data, send.data, static_cast<std::size_t>(send.bytes));
    ++receive;
  }
  for (; receive != transfers.end(); ++receive) {
    require(receive->kind != Transfer::Kind::receive, "an exchange with oneself receives {} bytes that nothing sends",
            receive->bytes);
  }
}

class SelfCommunicator final : public Communicator {
 public:
  int rank() const override { return 0; }
  int size() const override { return 1; }

  void all_reduce_sum(Stream& /*stream*/, TensorView buffer) override { check_reduce(buffer); }
  void all_reduce_max(Stream& /*stream*/, TensorView buffer) override { check_reduce(buffer); }

  void reduce_scatter_sum(Stream& stream, ConstTensorView send, TensorView receive,
                          std::span<const std::int64_t> counts) override {
    check_reduce_scatter(send, receive, counts, 0, 1);
    copy_elements(stream, send, receive);
  }

  void all_gather(Stream& stream, ConstTensorView send, TensorView receive,
                  std::span<const std::int64_t> counts) override {
    check_all_gather(send, receive, counts, 0, 1);
    copy_elements(stream, send, receive);
  }

  void broadcast(Stream& /*stream*/, TensorView buffer, int root) override { check_broadcast(buffer, root, 1); }

  void exchange(Stream& stream, std::span<const Transfer> transfers) override {
    check_exchange(transfers, 1);
    if (transfers.empty()) return;
    stream.enqueue([list = std::vector<Transfer>(transfers.begin(), transfers.end())] { copy_to_self(list); });
  }

  std::unique_ptr<Communicator> split(int /*color*/, int /*key*/) override { return make_self_communicator(); }
};

}  // namespace

std::unique_ptr<Communicator> make_self_communicator() {
  return std::make_unique<SelfCommunicator>();
}

}  // namespace skrull
