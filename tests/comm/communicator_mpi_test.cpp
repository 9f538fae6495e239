// The MPI communicator against sums formed here, on 1 (self), 2, 3 and 4 ranks, with whole and with tiny messages.
#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <thread>
#include <vector>

#include "skrull/comm/communicator.h"
#include "skrull/comm/even_split.h"
#include "skrull/core/error.h"
#include "skrull/core/process.h"
#include "skrull/device/device.h"
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

/// All transfers in one piece, or cut so that every loop over pieces and rounds turns many times.
MessageLimits tiny_messages() {
  return {96, 512, 16};
}
const std::vector<MessageLimits>& all_limits() {
  static const std::vector<MessageLimits> limits = {MessageLimits{}, tiny_messages(), MessageLimits{1 << 20, 4096, 0}};
  return limits;
}

/// How a problem of rank `who` alone, or of it and higher ones, is told on all ranks of this test.
std::string as_told(int who, const std::string& problem) {
  return who == 0 ? problem : fmt::format("rank {} on {}: {}", who, host_name(), problem);
}

/// What rank `who` contributes at element i: many exponents, so that any other order of summing gives other bits.
template <class T>
T contribution(int who, std::int64_t i) {
  const auto mixed = static_cast<std::uint64_t>(i * 31 + who + 1) * 0x9E3779B97F4A7C15ULL;
  if constexpr (std::is_integral_v<T>) {
    return static_cast<T>(mixed >> 8U) - (T{1} << 54);
  } else {
    const auto mantissa = static_cast<T>(static_cast<std::int64_t>(mixed >> 40U) - (1 << 23));
    return std::ldexp(mantissa, static_cast<int>(mixed % 20) - 30);
  }
}

template <class T>
std::vector<T> contributions(int who, std::int64_t elements) {
  std::vector<T> values(static_cast<std::size_t>(elements));
  for (std::int64_t i = 0; i < elements; ++i) values[static_cast<std::size_t>(i)] = contribution<T>(who, i);
  return values;
}

template <class T>
std::vector<T> sums(std::int64_t elements) {
  std::vector<T> result = contributions<T>(0, elements);
  for (int who = 1; who < size(); ++who) {
    for (std::int64_t i = 0; i < elements; ++i) result[static_cast<std::size_t>(i)] += contribution<T>(who, i);
  }
  return result;
}

template <class T>
TensorView view(std::vector<T>& values) {
  return {values.data(), dtype_of<T>, 1, static_cast<std::int64_t>(values.size())};
}

template <class T>
bool same_bits(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0);
}

struct World {
  explicit World(const MessageLimits& limits = {}) : communicator(test::mpi_session().world(limits)) {}
  std::unique_ptr<Device> device = make_cpu_device(1);
  Stream& stream = device->communication_stream();
  std::unique_ptr<Communicator> communicator;
};

/// Uneven, with a rank that has nothing: 0 x scale, 3 x scale, 1 x scale, ...
std::vector<std::int64_t> uneven_counts(std::int64_t scale) {
  std::vector<std::int64_t> counts;
  for (int i = 0; i < size(); ++i) counts.push_back((i * 3 + (size() == 1 ? 2 : 0)) % 5 * scale);
  return counts;
}

std::int64_t total_of(const std::vector<std::int64_t>& counts) {
  std::int64_t total = 0;
  for (const std::int64_t count : counts) total += count;
  return total;
}

std::int64_t begin_of(const std::vector<std::int64_t>& counts, int who) {
  return total_of({counts.begin(), counts.begin() + who});
}

template <class T>
void check_all_reduce(World& world) {
  for (const std::int64_t elements : {0, 1, 2, 3, 5, 17, 64, 1000, 2503}) {
    INFO(elements << " elements of " << name_of(dtype_of<T>) << ", rank " << rank() << " of " << size());
    std::vector<T> values = contributions<T>(rank(), elements);
    world.communicator->all_reduce_sum(world.stream, view(values));
    world.stream.synchronize();
    REQUIRE(same_bits(values, sums<T>(elements)));

    std::vector<T> largest = contributions<T>(rank(), elements);
    world.communicator->all_reduce_max(world.stream, view(largest));
    world.stream.synchronize();
    for (std::int64_t i = 0; i < elements; ++i) {
      T expected = contribution<T>(0, i);
      for (int who = 1; who < size(); ++who) expected = std::max(expected, contribution<T>(who, i));
      REQUIRE(largest[static_cast<std::size_t>(i)] == expected);
    }
  }
}

}  // namespace

TEST_CASE("all-reduce: each element summed in rank order, the same bits everywhere", "[mpi]") {
  for (const MessageLimits& limits : all_limits()) {
    World world(limits);
    check_all_reduce<float>(world);
    check_all_reduce<double>(world);
    check_all_reduce<std::int64_t>(world);
  }
}

TEST_CASE("all-reduce: what is not a number reaches every rank", "[mpi]") {
  for (const MessageLimits& limits : all_limits()) {
    World world(limits);
    std::vector<float> values(300, 1.0F);
    if (rank() == size() - 1) values[299] = std::numeric_limits<float>::quiet_NaN();
    if (rank() == 0) values[7] = std::numeric_limits<float>::quiet_NaN();
    std::vector<float> largest = values;
    world.communicator->all_reduce_sum(world.stream, view(values));
    world.communicator->all_reduce_max(world.stream, view(largest));
    world.stream.synchronize();
    CHECK(std::isnan(values[299]));
    CHECK(std::isnan(values[7]));
    CHECK(values[8] == static_cast<float>(size()));
    CHECK(std::isnan(largest[299]));
    CHECK(std::isnan(largest[7]));
    CHECK(largest[8] == 1.0F);
  }
}

TEST_CASE("reduce-scatter: uneven and empty parts, the bits of all-reduce", "[mpi]") {
  for (const MessageLimits& limits : all_limits()) {
    World world(limits);
    for (const std::int64_t scale : {0, 1, 7, 501}) {
      const std::vector<std::int64_t> counts = uneven_counts(scale);
      std::vector<float> send = contributions<float>(rank(), total_of(counts));
      std::vector<float> all = send;
      std::vector<float> received(static_cast<std::size_t>(counts[static_cast<std::size_t>(rank())]));
      world.communicator->reduce_scatter_sum(world.stream, view(send), view(received), counts);
      world.communicator->all_reduce_sum(world.stream, view(all));
      world.stream.synchronize();
      const auto begin = all.begin() + begin_of(counts, rank());
      REQUIRE(same_bits(received, std::vector<float>(begin, begin + counts[static_cast<std::size_t>(rank())])));
      REQUIRE(same_bits(send, contributions<float>(rank(), total_of(counts))));  // the contribution is only read
    }
  }
}

TEST_CASE("all-gather: uneven and empty parts, in place and apart, any dtype", "[mpi]") {
  for (const MessageLimits& limits : all_limits()) {
    World world(limits);
    for (const std::int64_t scale : {0, 1, 7, 501}) {
      const std::vector<std::int64_t> counts = uneven_counts(scale);
      const auto own_count = counts[static_cast<std::size_t>(rank())];
      std::vector<std::uint8_t> expected;
      for (int who = 0; who < size(); ++who) {
        for (std::int64_t i = 0; i < counts[static_cast<std::size_t>(who)]; ++i) {
          expected.push_back(static_cast<std::uint8_t>(who * 37 + i));
        }
      }
      const auto own = expected.begin() + begin_of(counts, rank());
      std::vector<std::uint8_t> part(own, own + own_count);
      std::vector<std::uint8_t> apart(expected.size());
      std::vector<std::uint8_t> in_place(expected.size());
      std::copy(part.begin(), part.end(), in_place.begin() + begin_of(counts, rank()));
      world.communicator->all_gather(world.stream, view(part), view(apart), counts);
      world.communicator->all_gather(world.stream, view(in_place).slice_cols(begin_of(counts, rank()), own_count),
                                     view(in_place), counts);
      world.stream.synchronize();
      REQUIRE(apart == expected);
      REQUIRE(in_place == expected);
    }
  }
}

TEST_CASE("broadcast from every rank", "[mpi]") {
  for (const MessageLimits& limits : all_limits()) {
    World world(limits);
    for (int root = 0; root < size(); ++root) {
      for (const std::int64_t elements : {0, 1, 24, 25, 1500}) {
        std::vector<float> values = contributions<float>(rank() == root ? 100 + root : rank(), elements);
        world.communicator->broadcast(world.stream, view(values), root);
        world.stream.synchronize();
        REQUIRE(same_bits(values, contributions<float>(100 + root, elements)));
      }
    }
  }
}

TEST_CASE("split: groups by color, ordered by key", "[mpi]") {
  World world;
  // Even and odd ranks, counted backwards.
  const auto group = world.communicator->split(rank() % 2, size() - rank());
  const int members = (size() + 1 - rank() % 2) / 2;
  REQUIRE(group->size() == members);
  CHECK(group->rank() == members - 1 - rank() / 2);
  std::vector<std::int64_t> ranks(static_cast<std::size_t>(members));
  std::vector<std::int64_t> own = {rank()};
  group->all_gather(world.stream, view(own), view(ranks), std::vector<std::int64_t>(ranks.size(), 1));
  world.stream.synchronize();
  for (int place = 0; place < members; ++place) {
    CHECK(ranks[static_cast<std::size_t>(place)] == rank() % 2 + 2 * (members - 1 - place));
  }
  // A group of a group, and both used in turn on one stream.
  const auto alone = group->split(group->rank(), 0);
  CHECK(alone->size() == 1);
  double both = 1;
  group->all_reduce_sum(world.stream, {&both, DType::float64, 1, 1});
  world.communicator->all_reduce_sum(world.stream, {&both, DType::float64, 1, 1});
  world.stream.synchronize();
  const int even = (size() + 1) / 2;
  const int odd = size() / 2;
  CHECK(both == even * even + odd * odd);
}

TEST_CASE("exchange: rings in both directions, messages in list order, any size", "[mpi]") {
  for (const MessageLimits& limits : all_limits()) {
    World world(limits);
    const int next = (rank() + 1) % size();
    const int previous = (rank() + size() - 1) % size();
    for (const std::int64_t elements : {0, 1, 23, 24, 25, 1500}) {
      std::vector<float> sent = contributions<float>(rank(), elements);
      std::vector<float> sent_second = contributions<float>(rank() + 50, elements + 3);
      std::vector<float> from_previous(sent.size());
      std::vector<float> from_previous_second(sent_second.size());
      std::vector<float> from_next(sent.size());
      const auto transfer = [](Transfer::Kind kind, int peer, std::vector<float>& values) {
        return Transfer{kind, peer, values.data(), static_cast<std::int64_t>(values.size() * sizeof(float))};
      };
      // Towards next: sent, sent_second; towards previous: sent. With two ranks both go to the same peer, in order.
      const std::vector<Transfer> transfers = {transfer(Transfer::Kind::send, next, sent),
                                               transfer(Transfer::Kind::receive, previous, from_previous),
                                               transfer(Transfer::Kind::send, next, sent_second),
                                               transfer(Transfer::Kind::receive, previous, from_previous_second),
                                               transfer(Transfer::Kind::send, previous, sent),
                                               transfer(Transfer::Kind::receive, next, from_next)};
      world.communicator->exchange(world.stream, transfers);
      world.communicator->exchange(world.stream, {});
      world.stream.synchronize();
      REQUIRE(same_bits(from_previous, contributions<float>(previous, elements)));
      REQUIRE(same_bits(from_previous_second, contributions<float>(previous + 50, elements + 3)));
      REQUIRE(same_bits(from_next, contributions<float>(next, elements)));
    }
  }
}

TEST_CASE("a block travels once around the ring while the host goes on", "[mpi]") {
  World world;
  constexpr std::int64_t elements = 5000;
  std::vector<std::vector<float>> hops(static_cast<std::size_t>(size()));
  std::vector<Event> arrived;
  for (auto& hop : hops) hop.assign(elements, 0.0F);
  hops[0] = contributions<float>(rank(), elements);
  for (int hop = 1; hop < size(); ++hop) {
    auto& from = hops[static_cast<std::size_t>(hop) - 1];
    auto& into = hops[static_cast<std::size_t>(hop)];
    const std::vector<Transfer> transfers = {
        {Transfer::Kind::send, (rank() + 1) % size(), from.data(), elements * 4},
        {Transfer::Kind::receive, (rank() + size() - 1) % size(), into.data(), elements * 4}};
    world.communicator->exchange(world.stream, transfers);
    arrived.push_back(world.stream.record());
  }
  for (int hop = 1; hop < size(); ++hop) {
    arrived[static_cast<std::size_t>(hop) - 1].synchronize();
    REQUIRE(same_bits(hops[static_cast<std::size_t>(hop)],
                      contributions<float>((rank() + size() - hop) % size(), elements)));
  }
}

TEST_CASE("many queued operations keep their order", "[mpi]") {
  World world(tiny_messages());
  Stream& compute = world.device->compute_stream();
  constexpr int rounds = 50;
  std::vector<double> values(50, 1.0);
  std::vector<Event> events;
  for (int round = 0; round < rounds; ++round) {
    world.stream.wait(compute.record());
    world.communicator->all_reduce_sum(world.stream, view(values));
    world.stream.enqueue([&values] {
      for (double& value : values) value = value / size() + 1;
    });
    events.push_back(world.stream.record());
  }
  compute.wait(events.back());
  for (const Event& event : events) REQUIRE(event.reached());
  CHECK(values == std::vector<double>(50, rounds + 1));
}

TEST_CASE("control: sums, maxima, texts", "[mpi][control]") {
  World world;
  ControlChannel control(*world.communicator, world.stream);
  CHECK(control.rank() == rank());
  CHECK(control.sum(std::int64_t{rank() + 1}) == size() * (size() + 1) / 2);
  CHECK(control.sum((std::int64_t{1} << 60) / size() * size() / size()) == (std::int64_t{1} << 60) / size() * size());
  CHECK(control.sum(0.5) == 0.5 * size());
  CHECK(control.max(std::int64_t{-rank()}) == 0);
  CHECK(control.max(-1.5 * rank()) == 0.0);
  CHECK(std::isnan(control.max(rank() == size() - 1 ? std::nan("") : 1.0)));
  for (int root = 0; root < size(); ++root) {
    CHECK(control.broadcast("from rank " + std::to_string(rank()), root) == "from rank " + std::to_string(root));
  }
  CHECK(control.broadcast(rank() == 0 ? "" : "other").empty());
  const std::string plan(200000, 'p');
  CHECK(control.broadcast(rank() == 0 ? plan : "") == plan);
  std::vector<std::string> texts;
  for (int who = 0; who < size(); ++who) texts.push_back(std::string(static_cast<std::size_t>(who) * 3, 'a' + who));
  CHECK(control.gather(texts[static_cast<std::size_t>(rank())]) == texts);
  control.barrier();
}

TEST_CASE("control: rank 0 works, the others wait without a collective open, and any of them can stop it",
          "[mpi][control]") {
  World world;
  ControlChannel control(*world.communicator, world.stream);
  CHECK(control.run_on_root([] { return std::string("built"); }, [] { return false; }, [] {}) == "built");
  std::atomic<bool> cancelled{false};
  const auto work = [&]() -> std::string {
    while (!cancelled) std::this_thread::yield();
    throw Stopped("stopped in the middle");
  };
  const auto wanted_by_the_last = [] { return rank() == size() - 1; };
  try {
    control.run_on_root(work, wanted_by_the_last, [&] { cancelled = true; });
    FAIL("no error");
  } catch (const Stopped& error) {
    CHECK(error.what() == std::string("stopped in the middle"));
    CHECK(failed_together(error));
  }
  CHECK(cancelled == (rank() == 0));
}

TEST_CASE("control: all ranks fail with the lowest rank's problem, and know whose it is", "[mpi][control]") {
  World world;
  ControlChannel control(*world.communicator, world.stream);
  control.agree_or_throw("", 0);
  const int first = size() / 2;
  const auto fail = [&](int code) {
    control.agree_or_throw(rank() >= first ? "problem " + std::to_string(rank()) : "", code);
  };
  const std::string expected = as_told(first, "problem " + std::to_string(first));
  // Ranks that see no problem pass a code of their own, which does not count.
  try {
    fail(rank() == first ? 2 : 1);
    FAIL("no error");
  } catch (const InvalidInput& error) {
    CHECK(error.what() == expected);
    CHECK(failed_together(error));
  }
  try {
    fail(rank() == first ? 1 : 2);
    FAIL("no error");
  } catch (const RunFailure& error) {
    CHECK(error.what() == expected);
    CHECK(failed_together(error));
  }
  CHECK(control.run_together([] { return std::string("fine"); }) == "fine");
  CHECK_THROWS_AS(control.run_together([&] {
    if (rank() == size() - 1) throw std::runtime_error("library error");
    return 1;
  }),
                  RunFailure);
  CHECK_THROWS_AS(control.run_together([&] {
    if (rank() == 0) throw_invalid_input("row 3");
  }),
                  InvalidInput);
  CHECK(control.sum(std::int64_t{1}) == size());  // and the channel still works
}

TEST_CASE("control: work that agrees in its middle ends on all ranks, wherever one of them fails", "[mpi][control]") {
  World world;
  ControlChannel control(*world.communicator, world.stream);
  const int failing = size() - 1;
  for (int failing_part = 0; failing_part < 4; ++failing_part) {
    int parts = 0;
    try {
      control.run_together([&] {
        for (; parts < 3; ++parts) {
          if (rank() == failing && parts == failing_part) throw_invalid_input("part {}", parts);
          control.agree_or_throw("", 0);
        }
        if (rank() == failing && failing_part == 3) throw_invalid_input("part 3");
      });
      FAIL("no error");
    } catch (const InvalidInput& error) {
      CHECK(error.what() == as_told(failing, fmt::format("part {}", failing_part)));
      CHECK(failed_together(error));
    }
    CHECK(parts == failing_part);
    CHECK(control.sum(std::int64_t{1}) == size());  // nobody is a collective ahead
  }
}

TEST_CASE("a message of another length than expected is an error", "[mpi]") {
  if (size() < 2) return;
  World world;
  static std::vector<char> memory(256);
  Transfer transfer = {Transfer::Kind::send, 1, memory.data(), 64};
  if (rank() == 1) transfer = {Transfer::Kind::receive, 0, memory.data(), 128};
  if (rank() > 1) return;
  world.communicator->exchange(world.stream, {&transfer, 1});
  if (rank() == 0) {
    world.stream.synchronize();
  } else {
    CHECK_THROWS_AS(world.stream.synchronize(), RunFailure);
  }
}

TEST_CASE("a rank that fails does not wait for the others", "[mpi]") {
  if (size() < 2) return;
  static std::vector<char> memory(64);  // MPI keeps the receive that nothing will ever match
  const auto device = make_cpu_device(1);
  Event end;
  try {
    const auto world = test::mpi_session().world();
    const Transfer never = {Transfer::Kind::receive, (rank() + 1) % size(), memory.data(), 64};
    world->exchange(device->communication_stream(), {&never, 1});
    end = device->communication_stream().record();
    throw RunFailure("this rank's own problem");
  } catch (const RunFailure&) {
    CHECK_THROWS_AS(end.synchronize(), RunFailure);
  }
}
