#include <exception>
#include <utility>

#include "mpi_group.h"
#include "skrull/comm/collective_checks.h"
#include "skrull/core/error.h"

namespace skrull {
namespace {

// Queues the group's blocking calls on the stream. Tasks hold the group, so it may go before they have run.
class MpiCommunicator final : public Communicator {
 public:
  explicit MpiCommunicator(std::shared_ptr<MpiGroup> group) : group_(std::move(group)) {}
  ~MpiCommunicator() override {
    if (std::uncaught_exceptions() > exceptions_at_start_) group_->abandon();
  }
  MpiCommunicator(const MpiCommunicator&) = delete;
  MpiCommunicator& operator=(const MpiCommunicator&) = delete;

  int rank() const override { return group_->rank(); }
  int size() const override { return group_->size(); }

  void all_reduce_sum(Stream& stream, TensorView buffer) override { all_reduce(stream, ReduceOp::sum, buffer); }
  void all_reduce_max(Stream& stream, TensorView buffer) override { all_reduce(stream, ReduceOp::max, buffer); }

  void reduce_scatter_sum(Stream& stream, ConstTensorView send, TensorView receive,
                          std::span<const std::int64_t> counts) override {
    check_reduce_scatter(send, receive, counts, rank(), size());
    stream.enqueue([group = group_, send, receive, counts = std::vector<std::int64_t>(counts.begin(), counts.end())] {
      group->reduce_scatter(ReduceOp::sum, send.dtype(), static_cast<const char*>(send.data()),
                            static_cast<char*>(receive.data()), counts);
    });
  }

  void all_gather(Stream& stream, ConstTensorView send, TensorView receive,
                  std::span<const std::int64_t> counts) override {
    check_all_gather(send, receive, counts, rank(), size());
    stream.enqueue([group = group_, send, receive, counts = std::vector<std::int64_t>(counts.begin(), counts.end())] {
      group->all_gather(size_of(receive.dtype()), static_cast<const char*>(send.data()),
                        static_cast<char*>(receive.data()), counts);
    });
  }

  void broadcast(Stream& stream, TensorView buffer, int root) override {
    check_broadcast(buffer, root, size());
    stream.enqueue([group = group_, buffer, root] {
      group->broadcast(static_cast<char*>(buffer.data()), buffer.elements() * size_of(buffer.dtype()), root);
    });
  }

  void exchange(Stream& stream, std::span<const Transfer> transfers) override {
    check_exchange(transfers, size());
    if (transfers.empty()) return;
    stream.enqueue(
        [group = group_, list = std::vector<Transfer>(transfers.begin(), transfers.end())] { group->exchange(list); });
  }

  std::unique_ptr<Communicator> split(int color, int key) override {
    require(color >= 0, "split needs a color of 0 or more, not {}", color);
    MPI_Comm part = MPI_COMM_NULL;
    check_mpi(MPI_Comm_split(group_->comm(), color, key, &part), "splitting a communicator");
    auto group = std::make_shared<MpiGroup>(part, group_->limits());
    return group->size() == 1 ? make_self_communicator() : make_mpi_communicator(std::move(group));
  }

 private:
  void all_reduce(Stream& stream, ReduceOp op, TensorView buffer) {
    check_reduce(buffer);
    stream.enqueue([group = group_, op, buffer] { group->all_reduce(op, buffer); });
  }

  std::shared_ptr<MpiGroup> group_;
  int exceptions_at_start_ = std::uncaught_exceptions();
};

}  // namespace

std::unique_ptr<Communicator> make_mpi_communicator(std::shared_ptr<MpiGroup> group) {
  return std::make_unique<MpiCommunicator>(std::move(group));
}

}  // namespace skrull
