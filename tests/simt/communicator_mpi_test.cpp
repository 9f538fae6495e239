// Communicators over the memory of GPUs against MPI over host memory, whose results they must give bit by bit: through
// pinned memory in pieces of several sizes; or by NCCL, where every rank has a GPU (SKRULL_SIMT_GPUS).
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <vector>

#include "comm/nccl_communicator.h"
#include "comm/staged_communicator.h"
#include "device/cuda_device.h"
#include "skrull/comm/device_communicator.h"
#include "skrull/comm/even_split.h"
#include "skrull/core/rng.h"
#include "support/catch.h"
#include "support/mpi.h"

using namespace skrull;

namespace {

int rank() {
  return test::mpi_session().rank();
}
int size() {
  return test::mpi_session().size();
}

bool has_gpus_for_all() {
  return std::getenv("SKRULL_SIMT_GPUS") != nullptr;
}

/// The same operations on both sides.
struct Sides {
  explicit Sides(std::int64_t piece_bytes) : on_host(test::mpi_session().world()) {
    auto world = test::mpi_session().world();
    if (piece_bytes > 0) {
      on_device = make_staged_communicator(*device, std::move(world), piece_bytes);
    } else {
      on_device = make_nccl_communicator(dynamic_cast<CudaDevice&>(*device), std::move(world), 60);
    }
  }

  std::unique_ptr<Device> device = make_cuda_device(test::mpi_session().local_rank());
  Stream& stream = device->communication_stream();
  std::unique_ptr<Communicator> on_device;
  std::unique_ptr<Communicator> on_host;
};

/// Of the staging memory; 0: NCCL.
std::vector<std::int64_t> piece_sizes() {
  if (has_gpus_for_all()) return {0};
  return {64, 1000, std::int64_t{8} << 20};
}

using Bytes = std::vector<char>;

/// Values of `dtype` that differ by rank, with many exponents; for NCCL, which sums in its own order, whole numbers.
Bytes values_of(DType dtype, std::int64_t elements, std::uint64_t seed) {
  Rng rng(seed * 100 + static_cast<std::uint64_t>(rank()), "communicator test");
  Bytes bytes(static_cast<std::size_t>(elements * size_of(dtype)));
  for (std::int64_t i = 0; i < elements; ++i) {
    double value = rng.normal() * std::ldexp(1.0, static_cast<int>(rng.below(30)) - 15);
    if (has_gpus_for_all()) value = std::round(std::fmod(value, 1000.0)) + 0.0;  // no negative zero
    char* place = bytes.data() + i * size_of(dtype);
    if (dtype == DType::float32) {
      const auto narrow = static_cast<float>(value);
      std::memcpy(place, &narrow, sizeof(narrow));
    } else if (dtype == DType::bfloat16) {
      const auto narrow = bfloat16(static_cast<float>(value));
      std::memcpy(place, &narrow, sizeof(narrow));
    } else if (dtype == DType::float64) {
      std::memcpy(place, &value, sizeof(value));
    } else {
      const auto whole = static_cast<std::int64_t>(value * 1000);
      std::memcpy(place, &whole, sizeof(whole));
    }
  }
  return bytes;
}

/// Runs `operation(communicator, stream, memory)` on `memory`, on the host and on the device, and compares all of it.
void check_same(Sides& sides, const Bytes& before,
                const std::function<void(Communicator&, Stream&, char* memory)>& operation) {
  Bytes expected = before;
  operation(*sides.on_host, caller_stream(), expected.data());
  const auto bytes = static_cast<std::int64_t>(before.size());
  const Buffer buffer = sides.device->allocate(std::max<std::int64_t>(bytes, 1), "test");
  const TensorView all = buffer.view(DType::uint8, 1, bytes);
  sides.device->copy_to_device(sides.device->compute_stream(), all, before.data());
  sides.stream.wait(sides.device->compute_stream().record());
  operation(*sides.on_device, sides.stream, static_cast<char*>(buffer.data()));
  Bytes result(before.size());
  sides.device->copy_to_host(sides.stream, result.data(), all);
  sides.stream.synchronize();
  CHECK(result == expected);
}

TensorView view(char* memory, DType dtype, std::int64_t first, std::int64_t count) {
  return {memory + first * size_of(dtype), dtype, 1, count};
}

/// Uneven, with parts that are empty.
std::vector<std::vector<std::int64_t>> all_counts() {
  std::vector<std::vector<std::int64_t>> result = {even_counts(97, size()), even_counts(1, size()),
                                                   even_counts(0, size())};
  std::vector<std::int64_t> growing;
  for (int i = 0; i < size(); ++i) growing.push_back(i * 111);
  result.push_back(growing);
  return result;
}

std::int64_t sum_of(const std::vector<std::int64_t>& counts, int end) {
  std::int64_t sum = 0;
  for (int i = 0; i < end; ++i) sum += counts[static_cast<std::size_t>(i)];
  return sum;
}

}  // namespace

TEST_CASE("all-reduces") {
  for (const std::int64_t piece : piece_sizes()) {
    Sides sides(piece);
    for (const DType dtype : {DType::float32, DType::float64, DType::int64}) {
      for (const std::int64_t elements : {0, 1, 5, 64, 777}) {
        const Bytes before = values_of(dtype, elements, 1);
        check_same(sides, before, [&](Communicator& communicator, Stream& stream, char* memory) {
          communicator.all_reduce_sum(stream, view(memory, dtype, 0, elements));
        });
        check_same(sides, before, [&](Communicator& communicator, Stream& stream, char* memory) {
          communicator.all_reduce_max(stream, view(memory, dtype, 0, elements));
        });
      }
    }
  }
}

TEST_CASE("reduce-scatters and all-gathers, even and uneven, within the whole and outside") {
  for (const std::int64_t piece : piece_sizes()) {
    Sides sides(piece);
    for (const std::vector<std::int64_t>& counts : all_counts()) {
      const std::int64_t total = sum_of(counts, size());
      const std::int64_t first = sum_of(counts, rank());
      const std::int64_t own = counts[static_cast<std::size_t>(rank())];
      for (const bool inside : {false, true}) {
        const std::int64_t place = inside ? first : total;
        const Bytes reduced = values_of(DType::float32, total + own, 2);
        check_same(sides, reduced, [&](Communicator& communicator, Stream& stream, char* memory) {
          communicator.reduce_scatter_sum(stream, view(memory, DType::float32, 0, total),
                                          view(memory, DType::float32, place, own), counts);
        });
        const Bytes gathered = values_of(DType::bfloat16, total + own, 3);
        check_same(sides, gathered, [&](Communicator& communicator, Stream& stream, char* memory) {
          communicator.all_gather(stream, view(memory, DType::bfloat16, place, own),
                                  view(memory, DType::bfloat16, 0, total), counts);
        });
      }
    }
  }
}

TEST_CASE("broadcasts from every rank") {
  for (const std::int64_t piece : piece_sizes()) {
    Sides sides(piece);
    for (int root = 0; root < size(); ++root) {
      check_same(sides, values_of(DType::bfloat16, 333, 4),
                 [&](Communicator& communicator, Stream& stream, char* memory) {
                   communicator.broadcast(stream, view(memory, DType::bfloat16, 0, 333), root);
                 });
    }
  }
}

TEST_CASE("exchanges: messages of different sizes with several ranks at once, in list order") {
  for (const std::int64_t piece : piece_sizes()) {
    Sides sides(piece);
    const int next = (rank() + 1) % size();
    const int previous = (rank() + size() - 1) % size();
    constexpr std::int64_t longest = 2048;
    check_same(sides, values_of(DType::bfloat16, 3 * longest, 5),
               [&](Communicator& communicator, Stream& stream, char* memory) {
                 // The sender's rank decides how long its messages are.
                 const auto bytes = [](int sender, int message) {
                   return std::int64_t{(sender * 331 + message * 77) % 900};
                 };
                 const std::vector<Transfer> transfers = {
                     {Transfer::Kind::send, next, memory, bytes(rank(), 0)},
                     {Transfer::Kind::receive, previous, memory + longest, bytes(previous, 0)},
                     {Transfer::Kind::send, next, memory + 1000, bytes(rank(), 1)},
                     {Transfer::Kind::receive, previous, memory + longest + 1000, bytes(previous, 1)}};
                 communicator.exchange(stream, transfers);
                 communicator.exchange(stream, {});
               });
  }
}

TEST_CASE("parts of a communicator, and one rank alone") {
  Sides sides(piece_sizes().front());
  const auto half = sides.on_device->split(rank() % 2, rank());
  const auto expected_half = sides.on_host->split(rank() % 2, rank());
  CHECK(half->size() == expected_half->size());
  sides.on_device = sides.on_device->split(rank() % 2, rank());
  sides.on_host = sides.on_host->split(rank() % 2, rank());
  check_same(sides, values_of(DType::float32, 120, 6), [&](Communicator& communicator, Stream& stream, char* memory) {
    const std::vector<std::int64_t> counts = even_counts(60, communicator.size());
    communicator.all_reduce_sum(stream, view(memory, DType::float32, 0, 60));
    communicator.reduce_scatter_sum(
        stream, view(memory, DType::float32, 0, 60),
        view(memory, DType::float32, 60, counts[static_cast<std::size_t>(communicator.rank())]), counts);
  });
}

TEST_CASE("the way between GPUs is chosen by who has which") {
  const auto device = make_cuda_device(test::mpi_session().local_rank());
  const auto communicator = make_device_communicator(*device, test::mpi_session());
  CHECK(communicator->size() == size());
  const bool shared = size() > 1 && !has_gpus_for_all();
  const std::string expected = fmt::format("shared by {} ranks", size());
  CHECK((device->description().find(expected) != std::string::npos) == shared);
}
