#include <mpi.h>
#include <nccl.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <numeric>
#include <utility>
#include <vector>

#include "simt/stand_in/device_memory.h"
#include "simt/stand_in/machine.h"
#include "simt/stand_in/runtime.h"

struct ncclComm {
  /// What the device's thread and the host's tell each other.
  struct State {
    std::atomic<bool> aborted{false};
    std::atomic<ncclResult_t> error{ncclSuccess};
  };
  MPI_Comm mpi = MPI_COMM_NULL;
  int rank = 0;
  int size = 0;
  std::shared_ptr<State> state = std::make_shared<State>();
};

namespace skrull::simt {
namespace {

enum class Kind { all_reduce, reduce, reduce_scatter, all_gather, broadcast, send, receive };

/// One call, with sizes in bytes.
struct Call {
  Kind kind;
  const std::byte* send;  ///< nullptr: this rank sends nothing
  std::byte* receive;     ///< nullptr: this rank receives nothing
  std::size_t send_bytes;
  std::size_t receive_bytes;
  std::size_t count;  ///< of elements, as in the call
  ncclDataType_t type;
  ncclRedOp_t op;
  int peer;  ///< or root
  MPI_Comm mpi;
  int rank;
};

MPI_Datatype mpi_type(ncclDataType_t type) {
  switch (type) {
    case ncclUint8:
      return MPI_UINT8_T;
    case ncclInt32:
      return MPI_INT32_T;
    case ncclInt64:
      return MPI_INT64_T;
    case ncclFloat32:
      return MPI_FLOAT;
    case ncclFloat64:
      return MPI_DOUBLE;
  }
  return MPI_DATATYPE_NULL;
}

std::size_t bytes_of(ncclDataType_t type) {
  switch (type) {
    case ncclUint8:
      return 1;
    case ncclInt32:
    case ncclFloat32:
      return 4;
    case ncclInt64:
    case ncclFloat64:
      return 8;
  }
  return 0;
}

MPI_Op mpi_op(ncclRedOp_t op) {
  return op == ncclSum ? MPI_SUM : op == ncclMax ? MPI_MAX : MPI_MIN;
}

/// A call under way, on copies in host memory: MPI must not touch the device's.
class Operation {
 public:
  explicit Operation(const Call& call) : call_(call) {}

  void read() {
    if (call_.send != nullptr) sent_.assign(call_.send, call_.send + call_.send_bytes);
    received_.resize(call_.receive_bytes);
  }
  /// What is received is not there until the end.
  void spoil() const {
    if (call_.receive == nullptr) return;
    if (call_.kind == Kind::broadcast && call_.send == call_.receive) return;
    if (call_.kind != Kind::all_gather) {
      std::memset(call_.receive, 0xFF, call_.receive_bytes);
      return;
    }
    // In place, the own part stays.
    const std::size_t own = static_cast<std::size_t>(call_.rank) * call_.send_bytes;
    std::memset(call_.receive, 0xFF, own);
    std::memset(call_.receive + own + call_.send_bytes, 0xFF, call_.receive_bytes - own - call_.send_bytes);
  }
  MPI_Request start();
  void write() const {
    if (call_.receive != nullptr) std::memcpy(call_.receive, received_.data(), call_.receive_bytes);
  }

 private:
  Call call_;
  std::vector<std::byte> sent_;
  std::vector<std::byte> received_;
};

MPI_Request Operation::start() {
  const int count = static_cast<int>(call_.count);
  const MPI_Datatype type = mpi_type(call_.type);
  MPI_Request request = MPI_REQUEST_NULL;
  switch (call_.kind) {
    case Kind::all_reduce:
      MPI_Iallreduce(sent_.data(), received_.data(), count, type, mpi_op(call_.op), call_.mpi, &request);
      break;
    case Kind::reduce:
      MPI_Ireduce(sent_.data(), received_.data(), count, type, mpi_op(call_.op), call_.peer, call_.mpi, &request);
      break;
    case Kind::reduce_scatter:
      MPI_Ireduce_scatter_block(sent_.data(), received_.data(), count, type, mpi_op(call_.op), call_.mpi, &request);
      break;
    case Kind::all_gather:
      MPI_Iallgather(sent_.data(), count, type, received_.data(), count, type, call_.mpi, &request);
      break;
    case Kind::broadcast:
      if (call_.send != nullptr) received_ = sent_;
      MPI_Ibcast(received_.data(), count, type, call_.peer, call_.mpi, &request);
      break;
    case Kind::send:
      MPI_Isend(sent_.data(), count, type, call_.peer, 0, call_.mpi, &request);
      break;
    case Kind::receive:
      MPI_Irecv(received_.data(), count, type, call_.peer, 0, call_.mpi, &request);
      break;
  }
  return request;
}

/// The calls of a group on one stream.
class Group {
 public:
  Group(const std::vector<Call>& calls, std::shared_ptr<ncclComm::State> state)
      : operations_(calls.begin(), calls.end()), state_(std::move(state)) {}

  /// Begins at the first call; true when all is there, or the communicator was aborted.
  bool advance() {
    if (state_->aborted) return true;
    if (!begun_ && !comes()) return false;
    if (!begun_) begin();
    int done = 0;
    MPI_Testall(static_cast<int>(requests_.size()), requests_.data(), &done, MPI_STATUSES_IGNORE);
    if (done == 0) return false;
    for (const Operation& operation : operations_) operation.write();
    return true;
  }

 private:
  /// False where a fault keeps it from ever doing anything.
  bool comes() const {
    if (number_ == machine().nccl_exit) std::_Exit(0);
    if (number_ == machine().nccl_error) state_->error = ncclRemoteError;
    return number_ != machine().nccl_error && number_ != machine().nccl_hang;
  }
  void begin() {
    begun_ = true;
    for (Operation& operation : operations_) operation.read();
    for (const Operation& operation : operations_) operation.spoil();
    for (Operation& operation : operations_) requests_.push_back(operation.start());
  }

  static std::int64_t next_number() {
    static std::int64_t number = 0;  // the thread that calls NCCL makes all
    if (++number == machine().nccl_stop) std::raise(SIGSTOP);
    return number;
  }

  std::vector<Operation> operations_;
  std::shared_ptr<ncclComm::State> state_;
  std::vector<MPI_Request> requests_;
  std::int64_t number_ = next_number();  ///< of this process, from 1
  bool begun_ = false;
};

struct OpenGroup {
  struct Entry {
    Call call;
    std::shared_ptr<ncclComm::State> state;
    cudaStream_t stream;
  };
  int depth = 0;
  std::vector<Entry> entries;
};
thread_local OpenGroup open_group;

ncclResult_t close_group() {
  std::vector<OpenGroup::Entry> entries = std::exchange(open_group.entries, {});
  while (!entries.empty()) {
    const cudaStream_t stream = entries.front().stream;
    const auto state = entries.front().state;
    std::vector<Call> calls;
    for (const auto& entry : entries) {
      if (entry.stream == stream) calls.push_back(entry.call);
    }
    std::erase_if(entries, [&](const auto& entry) { return entry.stream == stream; });
    auto group = std::make_shared<Group>(calls, state);
    if (queue_step(stream, {[group] { return group->advance(); }}) != cudaSuccess) return ncclUnhandledCudaError;
  }
  return ncclSuccess;
}

ncclResult_t add(ncclComm_t communicator, cudaStream_t stream, Call call) {
  if (communicator == nullptr || call.peer < 0 || call.peer >= communicator->size || call.count > INT_MAX ||
      mpi_type(call.type) == MPI_DATATYPE_NULL) {
    return ncclInvalidArgument;
  }
  DeviceMemory& memory = DeviceMemory::instance();
  if (call.send != nullptr && !memory.contains(call.send, call.send_bytes)) return ncclInvalidArgument;
  if (call.receive != nullptr && !memory.contains(call.receive, call.receive_bytes)) return ncclInvalidArgument;
  call.mpi = communicator->mpi;
  call.rank = communicator->rank;
  open_group.entries.push_back({call, communicator->state, stream});
  return open_group.depth > 0 ? ncclSuccess : close_group();
}

const std::byte* source(const void* data) {
  return static_cast<const std::byte*>(data);
}
std::byte* target(void* data) {
  return static_cast<std::byte*>(data);
}

/// What ncclUniqueId holds: where the ranks meet.
struct Meeting {
  int world_rank;
  int serial;
};

/// The ranks of MPI_COMM_WORLD in the order of the new communicator's: rank 0, which made the id, is told and tells.
std::vector<int> exchange_world_ranks(const Meeting& meeting, int ranks, int rank) {
  const int tag = 30000 + meeting.serial % 2000;
  std::vector<int> world_ranks(static_cast<std::size_t>(ranks));
  int own = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &own);
  if (rank != 0) {
    const std::array<int, 2> message = {rank, own};
    MPI_Send(message.data(), 2, MPI_INT, meeting.world_rank, tag, MPI_COMM_WORLD);
    MPI_Recv(world_ranks.data(), ranks, MPI_INT, meeting.world_rank, tag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    return world_ranks;
  }
  world_ranks[0] = own;
  for (int i = 1; i < ranks; ++i) {
    std::array<int, 2> message{};
    MPI_Recv(message.data(), 2, MPI_INT, MPI_ANY_SOURCE, tag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    world_ranks[static_cast<std::size_t>(message[0])] = message[1];
  }
  for (int i = 1; i < ranks; ++i) {
    MPI_Send(world_ranks.data(), ranks, MPI_INT, world_ranks[static_cast<std::size_t>(i)], tag, MPI_COMM_WORLD);
  }
  return world_ranks;
}

}  // namespace
}  // namespace skrull::simt

using namespace skrull::simt;

// ---- communicators

const char* ncclGetErrorString(ncclResult_t result) {
  switch (result) {
    case ncclSuccess:
      return "no error";
    case ncclUnhandledCudaError:
      return "unhandled cuda error";
    case ncclSystemError:
      return "unhandled system error";
    case ncclInternalError:
      return "internal error";
    case ncclInvalidArgument:
      return "invalid argument";
    case ncclInvalidUsage:
      return "invalid usage";
    case ncclRemoteError:
      return "remote process exited or there was a network error";
    case ncclInProgress:
      return "NCCL operation in progress";
  }
  return "unknown result code";
}
const char* ncclGetLastError(ncclComm_t /*communicator*/) {
  return "";
}
ncclResult_t ncclGetVersion(int* version) {
  *version = 22809;
  return ncclSuccess;
}

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  static std::atomic<int> serial{0};
  Meeting meeting{0, serial++};
  MPI_Comm_rank(MPI_COMM_WORLD, &meeting.world_rank);
  *id = {};
  std::memcpy(id->internal, &meeting, sizeof(meeting));
  return ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* communicator, int ranks, ncclUniqueId id, int rank,
                                    ncclConfig_t* /*config*/) {
  if (ranks < 1 || rank < 0 || rank >= ranks) return ncclInvalidArgument;
  Meeting meeting{};
  std::memcpy(&meeting, id.internal, sizeof(meeting));
  if (machine().nccl_error == 0) return ncclSystemError;
  if (machine().nccl_hang == 0) {
    *communicator = new ncclComm();
    (*communicator)->state->error = ncclInProgress;
    return ncclInProgress;
  }
  const std::vector<int> world_ranks = exchange_world_ranks(meeting, ranks, rank);
  auto made = std::make_unique<ncclComm>();
  made->rank = rank;
  made->size = ranks;
  MPI_Group world = MPI_GROUP_NULL;
  MPI_Group group = MPI_GROUP_NULL;
  MPI_Comm_group(MPI_COMM_WORLD, &world);
  MPI_Group_incl(world, ranks, world_ranks.data(), &group);
  MPI_Comm_create_group(MPI_COMM_WORLD, group, 30000 + meeting.serial % 2000, &made->mpi);
  MPI_Group_free(&group);
  MPI_Group_free(&world);
  *communicator = made.release();
  return ncclSuccess;
}
ncclResult_t ncclCommInitRank(ncclComm_t* communicator, int ranks, ncclUniqueId id, int rank) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  return ncclCommInitRankConfig(communicator, ranks, id, rank, &config);
}
ncclResult_t ncclCommFinalize(ncclComm_t communicator) {
  return communicator != nullptr ? ncclSuccess : ncclInvalidArgument;
}
/// MPI's communicator stays until MPI ends: to free it takes all ranks.
ncclResult_t ncclCommDestroy(ncclComm_t communicator) {
  delete communicator;
  return ncclSuccess;
}
ncclResult_t ncclCommAbort(ncclComm_t communicator) {
  communicator->state->aborted = true;
  return ncclCommDestroy(communicator);
}
ncclResult_t ncclCommGetAsyncError(ncclComm_t communicator, ncclResult_t* error) {
  *error = communicator->state->error;
  return ncclSuccess;
}

// ---- operations

ncclResult_t ncclGroupStart() {
  ++open_group.depth;
  return ncclSuccess;
}
ncclResult_t ncclGroupEnd() {
  if (open_group.depth == 0) return ncclInvalidUsage;
  return --open_group.depth > 0 ? ncclSuccess : close_group();
}

ncclResult_t ncclAllReduce(const void* send, void* receive, std::size_t count, ncclDataType_t type, ncclRedOp_t op,
                           ncclComm_t communicator, cudaStream_t stream) {
  const std::size_t bytes = count * bytes_of(type);
  return add(communicator, stream,
             {Kind::all_reduce, source(send), target(receive), bytes, bytes, count, type, op, 0, MPI_COMM_NULL, 0});
}
ncclResult_t ncclReduce(const void* send, void* receive, std::size_t count, ncclDataType_t type, ncclRedOp_t op,
                        int root, ncclComm_t communicator, cudaStream_t stream) {
  if (communicator == nullptr) return ncclInvalidArgument;
  const std::size_t bytes = count * bytes_of(type);
  const bool is_root = communicator->rank == root;
  return add(communicator, stream,
             {Kind::reduce, source(send), is_root ? target(receive) : nullptr, bytes, is_root ? bytes : 0, count, type,
              op, root, MPI_COMM_NULL, 0});
}
ncclResult_t ncclReduceScatter(const void* send, void* receive, std::size_t count, ncclDataType_t type, ncclRedOp_t op,
                               ncclComm_t communicator, cudaStream_t stream) {
  if (communicator == nullptr) return ncclInvalidArgument;
  const std::size_t bytes = count * bytes_of(type);
  return add(communicator, stream,
             {Kind::reduce_scatter, source(send), target(receive), bytes * static_cast<std::size_t>(communicator->size),
              bytes, count, type, op, 0, MPI_COMM_NULL, 0});
}
ncclResult_t ncclAllGather(const void* send, void* receive, std::size_t count, ncclDataType_t type,
                           ncclComm_t communicator, cudaStream_t stream) {
  if (communicator == nullptr) return ncclInvalidArgument;
  const std::size_t bytes = count * bytes_of(type);
  return add(communicator, stream,
             {Kind::all_gather, source(send), target(receive), bytes,
              bytes * static_cast<std::size_t>(communicator->size), count, type, ncclSum, 0, MPI_COMM_NULL, 0});
}
ncclResult_t ncclBroadcast(const void* send, void* receive, std::size_t count, ncclDataType_t type, int root,
                           ncclComm_t communicator, cudaStream_t stream) {
  if (communicator == nullptr) return ncclInvalidArgument;
  const std::size_t bytes = count * bytes_of(type);
  const bool is_root = communicator->rank == root;
  return add(communicator, stream,
             {Kind::broadcast, is_root ? source(send) : nullptr, target(receive), is_root ? bytes : 0, bytes, count,
              type, ncclSum, root, MPI_COMM_NULL, 0});
}
ncclResult_t ncclSend(const void* send, std::size_t count, ncclDataType_t type, int peer, ncclComm_t communicator,
                      cudaStream_t stream) {
  return add(
      communicator, stream,
      {Kind::send, source(send), nullptr, count * bytes_of(type), 0, count, type, ncclSum, peer, MPI_COMM_NULL, 0});
}
ncclResult_t ncclRecv(void* receive, std::size_t count, ncclDataType_t type, int peer, ncclComm_t communicator,
                      cudaStream_t stream) {
  return add(communicator, stream,
             {Kind::receive, nullptr, target(receive), 0, count * bytes_of(type), count, type, ncclSum, peer,
              MPI_COMM_NULL, 0});
}
