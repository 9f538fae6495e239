// Time on an emulated network, with processor time so that every value is exact, and that data arrives as it should.
#include <numeric>
#include <vector>

#include "skrull/comm/emulated_network.h"
#include "skrull/comm/even_split.h"
#include "skrull/device/device.h"
#include "support/catch.h"
#include "support/mpi.h"

using namespace skrull;

namespace {

// Powers of two, so that sums are exact.
const LinkRate fast{1024.0, 0.25};
const LinkRate slow{256.0, 1.0};

struct Fixture {
  explicit Fixture(int ranks_per_node)
      : device(make_cpu_device(1, TimeSource::processor)),
        world(make_emulated_communicator(test::mpi_session().world(), {fast, slow, ranks_per_node})),
        stream(device->communication_stream()) {}

  int rank() const { return world->rank(); }
  int size() const { return world->size(); }
  /// What is queued next is ready then.
  void ready_at(double seconds) {
    stream.enqueue([&clock = stream.clock(), seconds] { clock.wait_until(seconds); });
  }
  double now() {
    const Event event = stream.record();
    event.synchronize();
    return event.seconds();
  }

  std::unique_ptr<Device> device;
  std::unique_ptr<Communicator> world;
  Stream& stream;
};

}  // namespace

TEST_CASE("emulated network: formulas") {
  CHECK(exchange_seconds({fast, slow, 1}, {1024, 512, 0, 0}) == 1.25);
  CHECK(exchange_seconds({fast, slow, 1}, {0, 2048, 0, 0}) == 2.25);
  CHECK(exchange_seconds({fast, slow, 1}, {1024, 0, 0, 512}) == 3.0);
  CHECK(exchange_seconds({fast, slow, 1}, {}) == 0.0);
  CHECK(ring_collective_seconds(fast, 4, 4096) == 3 * 1.25);
  CHECK(ring_collective_seconds(fast, 1, 4096) == 0.0);
}

TEST_CASE("emulated network: a hop around the ring begins when the later neighbour is ready") {
  Fixture fixture(8);
  std::vector<char> sent(1024, static_cast<char>(fixture.rank()));
  std::vector<char> received(1024);
  const int next = (fixture.rank() + 1) % fixture.size();
  const int previous = (fixture.rank() + fixture.size() - 1) % fixture.size();
  fixture.ready_at(fixture.rank() == 0 ? 10.0 : 2.0);
  const std::vector<Transfer> transfers = {{Transfer::Kind::send, next, sent.data(), 1024},
                                           {Transfer::Kind::receive, previous, received.data(), 1024}};
  fixture.world->exchange(fixture.stream, transfers);
  const bool beside_rank_0 = fixture.rank() == 0 || next == 0 || previous == 0;
  CHECK(fixture.now() == (beside_rank_0 ? 11.25 : 3.25));
  CHECK(received == std::vector<char>(1024, static_cast<char>(previous)));
  // Hops follow each other on the stream.
  fixture.world->exchange(fixture.stream, transfers);
  fixture.world->exchange(fixture.stream, transfers);
  CHECK(fixture.now() >= (beside_rank_0 ? 13.75 : 5.75));
  CHECK(fixture.now() <= 13.75);
}

TEST_CASE("emulated network: messages between nodes take the slow link") {
  Fixture fixture(1);
  std::vector<char> buffer(512);
  const int partner = fixture.rank() ^ 1;
  const bool sends = fixture.rank() < partner;
  const std::vector<Transfer> transfers = {
      {sends ? Transfer::Kind::send : Transfer::Kind::receive, partner, buffer.data(), 512}};
  fixture.world->exchange(fixture.stream, transfers);
  CHECK(fixture.now() == 3.0);
  fixture.world->exchange(fixture.stream, {});
  CHECK(fixture.now() == 3.0);
}

TEST_CASE("emulated network: collectives wait for the last rank, and sum as ever") {
  Fixture fixture(8);
  const int size = fixture.size();
  std::vector<double> values(static_cast<std::size_t>(256 * size), 1.0 + fixture.rank());
  const TensorView view(values.data(), DType::float64, 1, 256 * size);
  fixture.ready_at(4.0 * fixture.rank());
  fixture.world->all_reduce_sum(fixture.stream, view);
  const double step = fast.seconds(2048);
  double expected = 4.0 * (size - 1) + 2 * (size - 1) * step;
  CHECK(fixture.now() == expected);
  CHECK(values == std::vector<double>(values.size(), 0.5 * size * (size + 1)));

  const std::vector<std::int64_t> counts = even_counts(256 * size, size);
  std::vector<double> part(256);
  const TensorView part_view(part.data(), DType::float64, 1, 256);
  fixture.world->reduce_scatter_sum(fixture.stream, view, part_view, counts);
  fixture.world->all_gather(fixture.stream, part_view, view, counts);
  expected += 2 * (size - 1) * step;
  CHECK(fixture.now() == expected);
  CHECK(values == std::vector<double>(values.size(), 0.5 * size * size * (size + 1)));
}

TEST_CASE("emulated network: parts keep the network, with their own places in it") {
  Fixture fixture(2);
  // Pairs of neighbours share a node, the others don't.
  const bool neighbours = GENERATE(true, false);
  if (!neighbours && fixture.size() < 4) return;
  const auto part = fixture.world->split(neighbours ? fixture.rank() / 2 : fixture.rank() % 2, fixture.rank());
  REQUIRE(part->size() == 2);
  std::vector<double> values(128, 1.0);
  part->all_reduce_sum(fixture.stream, {values.data(), DType::float64, 1, 128});
  CHECK(fixture.now() == 2 * (neighbours ? fast : slow).seconds(512));
  CHECK(values == std::vector<double>(128, 2.0));
}

TEST_CASE("processor time: the compute stream's passes while its thread works, and by waiting for events") {
  Fixture fixture(8);
  Stream& compute = fixture.device->compute_stream();
  const Event begin = compute.record();
  double sum = 0.0;
  std::vector<double> numbers(1 << 22);
  std::iota(numbers.begin(), numbers.end(), 1.0);
  for (const double number : numbers) sum += 1.0 / number;
  const Event end = compute.record();
  CHECK(sum > 1.0);
  CHECK(end.seconds() > begin.seconds());
  fixture.ready_at(1000.0);
  compute.wait(fixture.stream.record());
  const double after = compute.record().seconds();
  CHECK(after >= 1000.0);
  CHECK(after < 1001.0);
  // The other way: communication begins when its data is there.
  fixture.stream.wait(compute.record());
  CHECK(fixture.now() >= after);
}
