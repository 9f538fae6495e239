#include "mpi_group.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <map>
#include <set>
#include <thread>

#include "skrull/comm/even_split.h"
#include "skrull/core/activity.h"
#include "skrull/core/backoff.h"
#include "skrull/core/error.h"
#include "skrull/core/narrow.h"

namespace skrull {
namespace {

constexpr int message_tag = 1;  // one is enough: every rank queues the same operations in the same order

std::vector<std::int64_t> begins_of(std::span<const std::int64_t> counts) {
  std::vector<std::int64_t> begins(counts.size(), 0);
  for (std::size_t i = 1; i < counts.size(); ++i) begins[i] = begins[i - 1] + counts[i - 1];
  return begins;
}

// The other ranks, each rank's list starting at its own neighbour, so that no rank is everyone's first.
struct Partners {
  int to;
  int from;
};
Partners partners(int rank, int size, int step) {
  return {(rank + step) % size, (rank - step + size) % size};
}

constexpr int note_tag = 2;  // on MPI_COMM_WORLD, which nothing else uses
using Note = std::array<char, 256>;

/// Sends `own` to all ranks of the program and gathers what they send within `seconds`, by rank, this one's included.
std::map<int, std::string> exchange_notes(const std::string& own, double seconds) {
  int rank = 0;
  int size = 1;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  std::map<int, std::string> notes = {{rank, own}};
  static Note sent{};  // who hangs never takes it: it must outlive this call
  own.copy(sent.data(), sent.size() - 1);
  std::vector<MPI_Request> requests(static_cast<std::size_t>(size), MPI_REQUEST_NULL);
  for (int peer = 0; peer < size; ++peer) {
    if (peer == rank) continue;
    MPI_Isend(sent.data(), static_cast<int>(sent.size()), MPI_CHAR, peer, note_tag, MPI_COMM_WORLD,
              &requests[static_cast<std::size_t>(peer)]);
  }
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  while (static_cast<int>(notes.size()) < size && std::chrono::steady_clock::now() < end) {
    int found = 0;
    MPI_Status status{};
    MPI_Iprobe(MPI_ANY_SOURCE, note_tag, MPI_COMM_WORLD, &found, &status);
    if (found == 0) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      continue;
    }
    Note received{};
    MPI_Recv(received.data(), static_cast<int>(received.size()), MPI_CHAR, status.MPI_SOURCE, note_tag, MPI_COMM_WORLD,
             MPI_STATUS_IGNORE);
    received.back() = '\0';
    notes[status.MPI_SOURCE] = received.data();
  }
  return notes;
}

}  // namespace

void check_mpi(int code, const char* operation) {
  if (code == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING] = {};
  int length = 0;
  MPI_Error_string(code, text, &length);
  throw_run_failure("{}: MPI reports \"{}\"", operation, std::string(text, static_cast<std::size_t>(length)));
}

void PendingMessages::send(int peer, const char* data, std::int64_t bytes) {
  const std::int64_t piece = group_.limits().message_bytes;
  for (std::int64_t begin = 0; begin < bytes; begin += piece) {
    const int count = narrow<int>(std::min(piece, bytes - begin));
    MPI_Request request = MPI_REQUEST_NULL;
    check_mpi(MPI_Isend(data + begin, count, MPI_BYTE, peer, message_tag, group_.comm(), &request), "send");
    add(request, peer, -1);
  }
}

void PendingMessages::receive(int peer, char* data, std::int64_t bytes) {
  const std::int64_t piece = group_.limits().message_bytes;
  for (std::int64_t begin = 0; begin < bytes; begin += piece) {
    const int count = narrow<int>(std::min(piece, bytes - begin));
    MPI_Request request = MPI_REQUEST_NULL;
    check_mpi(MPI_Irecv(data + begin, count, MPI_BYTE, peer, message_tag, group_.comm(), &request), "receive");
    add(request, peer, count);
  }
}

void PendingMessages::add(MPI_Request request, int peer, int expected_bytes) {
  requests_.push_back(request);
  messages_.push_back({peer, expected_bytes, false});
}

void PendingMessages::check_received(const Message& message, MPI_Status status, const char* operation) const {
  check_mpi(status.MPI_ERROR, operation);
  int received = 0;
  if (message.expected_bytes < 0) return;
  MPI_Get_count(&status, MPI_BYTE, &received);
  require(received == message.expected_bytes, "{}: {} bytes expected from rank {}, {} received", operation,
          message.expected_bytes, status.MPI_SOURCE, received);
}

// A rank that is late may itself wait for the one that hangs. So whoever has waited too long tells all ranks, and
// listens to them for a while: the ones that say nothing are missing.
void PendingMessages::fail_late(const char* operation) const {
  std::set<int> awaited;
  for (const Message& message : messages_) {
    if (!message.done) awaited.insert(group_.world_rank(message.peer));
  }
  const double timeout = group_.limits().timeout_seconds;
  const std::string own = fmt::format("{} ({}), waiting for rank {}", operation, activity(), fmt::join(awaited, ", "));
  const std::map<int, std::string> notes = exchange_notes(own, std::clamp(timeout / 2, 1.0, 30.0));
  std::set<int> missing = awaited;
  std::vector<int> arrived;
  std::string others;
  for (const auto& [rank, note] : notes) {
    missing.erase(rank);
    arrived.push_back(rank);
    others += fmt::format("; rank {}: {}", rank, note);
  }
  const bool in_a_circle = missing.empty();
  throw_run_failure("{} ({}): rank {} did not come within {} s (timeout_seconds); arrived: {}. {}{}", operation,
                    activity(), fmt::join(in_a_circle ? awaited : missing, ", "), timeout, fmt::join(arrived, ", "),
                    in_a_circle ? "All wait for each other"
                                : "The missing rank hangs, was stopped, or is much slower than the others",
                    others);
}

void PendingMessages::wait(const char* operation) {
  const int count = narrow<int>(requests_.size());
  std::vector<int> indices(requests_.size());
  std::vector<MPI_Status> statuses(requests_.size());
  Backoff backoff;
  for (int open = count; open > 0;) {
    int done = 0;
    const int code = MPI_Testsome(count, requests_.data(), &done, indices.data(), statuses.data());
    if (code != MPI_ERR_IN_STATUS) check_mpi(code, operation);
    for (int i = 0; i < done; ++i) {
      MPI_Status& status = statuses[static_cast<std::size_t>(i)];
      if (code == MPI_SUCCESS) status.MPI_ERROR = MPI_SUCCESS;  // MPI sets it only when one of them failed
      Message& message = messages_[static_cast<std::size_t>(indices[static_cast<std::size_t>(i)])];
      check_received(message, status, operation);
      message.done = true;
    }
    if (done > 0) {
      open -= done;
      backoff.reset();
    } else {
      require(!group_.abandoned(), "{}: given up, because this rank has failed", operation);
      const double timeout = group_.limits().timeout_seconds;
      if (timeout > 0 && backoff.idle_seconds() > timeout) fail_late(operation);
      backoff.pause();
    }
  }
  requests_.clear();
  messages_.clear();
}

MpiGroup::MpiGroup(MPI_Comm comm, const MessageLimits& limits)
    : comm_(comm), limits_(limits), scratch_(std::make_unique_for_overwrite<char[]>(limits.scratch_bytes)) {
  require(limits.message_bytes > 0 && limits.message_bytes <= 1 << 30 && limits.scratch_bytes > 0,
          "messages of {} bytes with {} bytes of scratch", limits.message_bytes, limits.scratch_bytes);
  check_mpi(MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  check_mpi(MPI_Comm_rank(comm_, &rank_), "MPI_Comm_rank");
  check_mpi(MPI_Comm_size(comm_, &size_), "MPI_Comm_size");
}

MpiGroup::~MpiGroup() {
  if (abandoned_) {
    scratch_.release();  // NOLINT(bugprone-unused-return-value): messages that are under way may still land in it
    return;
  }
  int finalized = 0;
  MPI_Finalized(&finalized);
  if (finalized == 0) MPI_Comm_free(&comm_);
}

int MpiGroup::world_rank(int rank) const {
  MPI_Group mine = MPI_GROUP_NULL;
  MPI_Group world = MPI_GROUP_NULL;
  MPI_Comm_group(comm_, &mine);
  MPI_Comm_group(MPI_COMM_WORLD, &world);
  int result = rank;
  MPI_Group_translate_ranks(mine, 1, &rank, world, &result);
  MPI_Group_free(&mine);
  MPI_Group_free(&world);
  return result;
}

void MpiGroup::all_reduce(ReduceOp op, TensorView buffer) {
  const std::int64_t element_bytes = size_of(buffer.dtype());
  const std::int64_t bytes = buffer.elements() * element_bytes;
  if (bytes <= limits_.gathered_bytes && bytes * (size_ - 1) <= limits_.scratch_bytes) {
    reduce_gathered(op, buffer);
    return;
  }
  const std::vector<std::int64_t> counts = even_counts(buffer.elements(), size_);
  const Part own = even_part(buffer.elements(), size_, rank_);
  auto* data = static_cast<char*>(buffer.data());
  char* own_data = data + own.begin * element_bytes;
  reduce_scatter(op, buffer.dtype(), data, own_data, counts);
  all_gather(element_bytes, own_data, data, counts);
}

// Few bytes: every rank gets all contributions and reduces them itself, in one round trip.
void MpiGroup::reduce_gathered(ReduceOp op, TensorView buffer) {
  const std::int64_t bytes = buffer.elements() * size_of(buffer.dtype());
  auto* data = static_cast<char*>(buffer.data());
  PendingMessages messages(*this);
  std::vector<const void*> sources(static_cast<std::size_t>(size_), data);
  for (int step = 1; step < size_; ++step) {
    const auto [to, from] = partners(rank_, size_, step);
    char* slot = scratch_.get() + (step - 1) * bytes;
    sources[static_cast<std::size_t>(from)] = slot;
    messages.receive(from, slot, bytes);
    messages.send(to, data, bytes);
  }
  messages.wait("all-reduce");
  reduce_in_order(op, buffer.dtype(), sources, data, buffer.elements());
}

// Direct exchange in rounds: in each, every rank receives one chunk of its part from every other rank, and reduces it
// while the next round travels.
void MpiGroup::reduce_scatter(ReduceOp op, DType dtype, const char* send, char* receive,
                              std::span<const std::int64_t> counts) {
  const std::int64_t element_bytes = size_of(dtype);
  const std::int64_t slot_bytes = limits_.scratch_bytes / 2 / std::max(1, size_ - 1) / 64 * 64;
  require(slot_bytes > 0, "{} bytes of scratch are too few for {} ranks", limits_.scratch_bytes, size_);
  const std::int64_t chunk = slot_bytes / element_bytes;
  const std::vector<std::int64_t> begins = begins_of(counts);
  const std::int64_t longest = *std::max_element(counts.begin(), counts.end());
  const std::int64_t rounds = (longest + chunk - 1) / chunk;
  const auto own = static_cast<std::size_t>(rank_);
  const auto elements_in = [&](std::size_t part, std::int64_t round) {
    return std::clamp<std::int64_t>(counts[part] - round * chunk, 0, chunk);
  };
  const auto slot = [&](std::int64_t round, int step) {
    return scratch_.get() + (round % 2 * (size_ - 1) + step - 1) * slot_bytes;
  };

  PendingMessages messages[2] = {PendingMessages(*this), PendingMessages(*this)};
  const auto post = [&](std::int64_t round) {
    for (int step = 1; step < size_; ++step) {
      const auto [to, from] = partners(rank_, size_, step);
      const auto target = static_cast<std::size_t>(to);
      messages[round % 2].receive(from, slot(round, step), elements_in(own, round) * element_bytes);
      messages[round % 2].send(to, send + (begins[target] + round * chunk) * element_bytes,
                               elements_in(target, round) * element_bytes);
    }
  };

  if (rounds > 0) post(0);
  std::vector<const void*> sources(static_cast<std::size_t>(size_));
  for (std::int64_t round = 0; round < rounds; ++round) {
    if (round + 1 < rounds) post(round + 1);
    messages[round % 2].wait("reduce-scatter");
    sources[own] = send + (begins[own] + round * chunk) * element_bytes;
    for (int step = 1; step < size_; ++step) {
      sources[static_cast<std::size_t>(partners(rank_, size_, step).from)] = slot(round, step);
    }
    reduce_in_order(op, dtype, sources, receive + round * chunk * element_bytes, elements_in(own, round));
  }
}

void MpiGroup::all_gather(std::int64_t element_bytes, const char* send, char* receive,
                          std::span<const std::int64_t> counts) {
  const std::vector<std::int64_t> begins = begins_of(counts);
  const auto own = static_cast<std::size_t>(rank_);
  char* place = receive + begins[own] * element_bytes;
  const std::int64_t own_bytes = counts[own] * element_bytes;
  if (send != place && own_bytes > 0) std::memcpy(place, send, static_cast<std::size_t>(own_bytes));
  PendingMessages messages(*this);
  for (int step = 1; step < size_; ++step) {
    const auto [to, from] = partners(rank_, size_, step);
    const auto source = static_cast<std::size_t>(from);
    messages.receive(from, receive + begins[source] * element_bytes, counts[source] * element_bytes);
    messages.send(to, place, own_bytes);
  }
  messages.wait("all-gather");
}

// Down a binomial tree, piece by piece.
void MpiGroup::broadcast(char* data, std::int64_t bytes, int root) {
  const int place = (rank_ - root + size_) % size_;  // in the tree, the root at 0
  const auto rank_at = [&](int tree_place) { return (tree_place + root) % size_; };
  int reach = 1;  // the lowest set bit of `place`; the children are at place + 1, 2, 4, ... below it
  while (reach < size_ && (place & reach) == 0) reach *= 2;

  PendingMessages to_children(*this);
  for (std::int64_t begin = 0; begin < bytes; begin += limits_.message_bytes) {
    const std::int64_t count = std::min(limits_.message_bytes, bytes - begin);
    if (place != 0) {
      PendingMessages from_parent(*this);
      from_parent.receive(rank_at(place - reach), data + begin, count);
      from_parent.wait("broadcast");
    }
    for (int distance = reach / 2; distance > 0; distance /= 2) {
      if (place + distance < size_) to_children.send(rank_at(place + distance), data + begin, count);
    }
  }
  to_children.wait("broadcast");
}

void MpiGroup::exchange(std::span<const Transfer> transfers) {
  PendingMessages messages(*this);
  for (const Transfer& transfer : transfers) {
    auto* data = static_cast<char*>(transfer.data);
    if (transfer.kind == Transfer::Kind::send) {
      messages.send(transfer.peer, data, transfer.bytes);
    } else {
      messages.receive(transfer.peer, data, transfer.bytes);
    }
  }
  messages.wait("exchange");
}

}  // namespace skrull
