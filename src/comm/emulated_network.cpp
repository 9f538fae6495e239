#include "skrull/comm/emulated_network.h"

#include <algorithm>
#include <deque>
#include <utility>

#include "skrull/comm/even_split.h"
#include "skrull/core/error.h"

namespace skrull {
namespace {

double link_seconds(const LinkRate& link, std::int64_t sent, std::int64_t received) {
  const std::int64_t bytes = std::max(sent, received);
  return bytes > 0 ? link.seconds(static_cast<double>(bytes)) : 0.0;
}

class EmulatedCommunicator final : public Communicator {
 public:
  /// `nodes`: of each rank.
  EmulatedCommunicator(std::unique_ptr<Communicator> inner, const EmulatedNetwork& network, std::vector<int> nodes)
      : inner_(std::move(inner)), network_(network), nodes_(std::move(nodes)) {
    const bool one_node = std::all_of(nodes_.begin(), nodes_.end(), [&](int node) { return node == nodes_.front(); });
    slowest_link_ = one_node ? network_.intra_node : network_.inter_node;
  }

  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }

  void all_reduce_sum(Stream& stream, TensorView buffer) override {
    together(stream, 2.0 * ring_seconds(buffer), [&] { inner_->all_reduce_sum(stream, buffer); });
  }
  void all_reduce_max(Stream& stream, TensorView buffer) override {
    together(stream, 2.0 * ring_seconds(buffer), [&] { inner_->all_reduce_max(stream, buffer); });
  }
  void reduce_scatter_sum(Stream& stream, ConstTensorView send, TensorView receive,
                          std::span<const std::int64_t> counts) override {
    together(stream, ring_seconds(send), [&] { inner_->reduce_scatter_sum(stream, send, receive, counts); });
  }
  void all_gather(Stream& stream, ConstTensorView send, TensorView receive,
                  std::span<const std::int64_t> counts) override {
    together(stream, ring_seconds(receive), [&] { inner_->all_gather(stream, send, receive, counts); });
  }
  void broadcast(Stream& stream, TensorView buffer, int root) override {
    together(stream, ring_seconds(buffer), [&] { inner_->broadcast(stream, buffer, root); });
  }

  void exchange(Stream& stream, std::span<const Transfer> transfers) override;

  std::unique_ptr<Communicator> split(int color, int key) override;

 private:
  /// Until everyone is ready, and then for `seconds`.
  template <class Operation>
  void together(Stream& stream, double seconds, const Operation& operation) {
    if (size() == 1) {
      operation();
      return;
    }
    const auto ready = std::make_shared<double>();
    stream.enqueue([ready, &clock = stream.clock()] { *ready = clock.seconds(); });
    inner_->all_reduce_max(stream, {ready.get(), DType::float64, 1, 1});
    operation();
    stream.enqueue([ready, seconds, &clock = stream.clock()] { clock.wait_until(*ready + seconds); });
    keep_until(stream.record(), ready);
  }

  /// Like the buffers of an operation, its times must stay while it runs, also when the stream drops what comes later.
  void keep_until(Event done, std::shared_ptr<void> memory) {
    while (!in_use_.empty() && in_use_.front().first.reached()) in_use_.pop_front();
    in_use_.emplace_back(std::move(done), std::move(memory));
  }

  double ring_seconds(ConstTensorView whole) const {
    return ring_collective_seconds(slowest_link_, size(),
                                   static_cast<double>(whole.elements() * size_of(whole.dtype())));
  }

  ExchangedBytes bytes_of(std::span<const Transfer> transfers) const;

  std::unique_ptr<Communicator> inner_;
  EmulatedNetwork network_;
  std::vector<int> nodes_;
  LinkRate slowest_link_;
  std::deque<std::pair<Event, std::shared_ptr<void>>> in_use_;
};

/// When this rank and those it exchanges with are ready.
struct ReadyTimes {
  double own = 0.0;
  std::vector<double> peers;
};

void EmulatedCommunicator::exchange(Stream& stream, std::span<const Transfer> transfers) {
  if (transfers.empty()) return;
  std::vector<int> peers;
  for (const Transfer& transfer : transfers) {
    if (transfer.peer != rank()) peers.push_back(transfer.peer);
  }
  std::sort(peers.begin(), peers.end());
  peers.erase(std::unique(peers.begin(), peers.end()), peers.end());
  const auto ready = std::make_shared<ReadyTimes>();
  ready->peers.resize(peers.size());
  std::vector<Transfer> times;
  for (std::size_t i = 0; i < peers.size(); ++i) {
    times.push_back({Transfer::Kind::send, peers[i], &ready->own, sizeof(double)});
    times.push_back({Transfer::Kind::receive, peers[i], &ready->peers[i], sizeof(double)});
  }
  stream.enqueue([ready, &clock = stream.clock()] { ready->own = clock.seconds(); });
  inner_->exchange(stream, times);
  inner_->exchange(stream, transfers);
  const double seconds = exchange_seconds(network_, bytes_of(transfers));
  stream.enqueue([ready, seconds, &clock = stream.clock()] {
    double begin = ready->own;
    for (const double peer : ready->peers) begin = std::max(begin, peer);
    clock.wait_until(begin + seconds);
  });
  keep_until(stream.record(), ready);
}

ExchangedBytes EmulatedCommunicator::bytes_of(std::span<const Transfer> transfers) const {
  ExchangedBytes bytes;
  const int own_node = nodes_[static_cast<std::size_t>(rank())];
  for (const Transfer& transfer : transfers) {
    if (transfer.peer == rank()) continue;
    const bool same_node = nodes_[static_cast<std::size_t>(transfer.peer)] == own_node;
    const bool sent = transfer.kind == Transfer::Kind::send;
    std::int64_t& sum = same_node ? (sent ? bytes.intra_node_sent : bytes.intra_node_received)
                                  : (sent ? bytes.inter_node_sent : bytes.inter_node_received);
    sum += transfer.bytes;
  }
  return bytes;
}

std::unique_ptr<Communicator> EmulatedCommunicator::split(int color, int key) {
  std::unique_ptr<Communicator> part = inner_->split(color, key);
  std::vector<std::int64_t> nodes(static_cast<std::size_t>(part->size()));
  const auto place = static_cast<std::size_t>(part->rank());
  nodes[place] = nodes_[static_cast<std::size_t>(rank())];
  part->all_gather(caller_stream(), {&nodes[place], DType::int64, 1, 1}, {nodes.data(), DType::int64, 1, part->size()},
                   even_counts(part->size(), part->size()));
  return std::make_unique<EmulatedCommunicator>(std::move(part), network_,
                                                std::vector<int>(nodes.begin(), nodes.end()));
}

}  // namespace

double exchange_seconds(const EmulatedNetwork& network, const ExchangedBytes& bytes) {
  return std::max(link_seconds(network.intra_node, bytes.intra_node_sent, bytes.intra_node_received),
                  link_seconds(network.inter_node, bytes.inter_node_sent, bytes.inter_node_received));
}

double ring_collective_seconds(const LinkRate& link, int ranks, double bytes) {
  return (ranks - 1) * link.seconds(bytes / ranks);
}

void start_together(Device& device, Communicator& communicator) {
  Stream& compute = device.compute_stream();
  Stream& communication = device.communication_stream();
  double none = 0.0;
  communication.wait(compute.record());
  communicator.all_reduce_max(communication, {&none, DType::float64, 1, 1});
  const Event begun = communication.record();
  begun.synchronize();  // `none` must stay until then
  compute.wait(begun);
}

std::unique_ptr<Communicator> make_emulated_communicator(std::unique_ptr<Communicator> communicator,
                                                         const EmulatedNetwork& network) {
  require(network.ranks_per_node >= 1, "{} ranks per node", network.ranks_per_node);
  std::vector<int> nodes(static_cast<std::size_t>(communicator->size()));
  for (std::size_t i = 0; i < nodes.size(); ++i) nodes[i] = static_cast<int>(i) / network.ranks_per_node;
  return std::make_unique<EmulatedCommunicator>(std::move(communicator), network, std::move(nodes));
}

}  // namespace skrull
