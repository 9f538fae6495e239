#include <numeric>
#include <vector>

#include "skrull/comm/communicator.h"
#include "skrull/core/error.h"
#include "skrull/device/device.h"
#include "support/catch.h"

using namespace skrull;

namespace {

struct Alone {
  std::unique_ptr<Device> device = make_cpu_device(1);
  Stream& stream = device->communication_stream();
  std::unique_ptr<Communicator> self = make_self_communicator();
};

TensorView view(std::vector<float>& values) {
  return {values.data(), DType::float32, 1, static_cast<std::int64_t>(values.size())};
}

}  // namespace

TEST_CASE("one rank alone: reductions change nothing, the rest copies", "[self]") {
  Alone alone;
  std::vector<float> values(1000);
  std::iota(values.begin(), values.end(), -3.0F);
  const std::vector<float> before = values;
  std::vector<float> other(1000);
  const std::vector<std::int64_t> counts = {1000};
  alone.self->all_reduce_sum(alone.stream, view(values));
  alone.self->all_reduce_max(alone.stream, view(values));
  alone.self->broadcast(alone.stream, view(values), 0);
  alone.self->all_gather(alone.stream, view(values), view(values), counts);
  alone.self->reduce_scatter_sum(alone.stream, view(values), view(other), counts);
  alone.stream.synchronize();
  CHECK(values == before);
  CHECK(other == before);
  std::vector<float> third(1000);
  alone.self->all_gather(alone.stream, view(other), view(third), counts);
  alone.stream.synchronize();
  CHECK(third == before);
  CHECK(alone.self->split(3, 1)->size() == 1);
}

TEST_CASE("an exchange with oneself matches sends and receives in list order", "[self]") {
  Alone alone;
  int sent[3] = {11, 22, 33};
  int received[3] = {};
  const auto transfer = [](Transfer::Kind kind, int* data) { return Transfer{kind, 0, data, sizeof(int)}; };
  const std::vector<Transfer> transfers = {
      transfer(Transfer::Kind::receive, &received[2]), transfer(Transfer::Kind::send, &sent[0]),
      transfer(Transfer::Kind::receive, &received[0]), transfer(Transfer::Kind::send, &sent[1]),
      transfer(Transfer::Kind::send, &sent[2]),        transfer(Transfer::Kind::receive, &received[1])};
  alone.self->exchange(alone.stream, transfers);
  alone.self->exchange(alone.stream, {});
  alone.stream.synchronize();
  CHECK(received[2] == 11);
  CHECK(received[0] == 22);
  CHECK(received[1] == 33);
}

TEST_CASE("an exchange with oneself that does not match is refused", "[self]") {
  int value = 0;
  const Transfer send = {Transfer::Kind::send, 0, &value, 4};
  const Transfer receive = {Transfer::Kind::receive, 0, &value, 4};
  const Transfer shorter = {Transfer::Kind::receive, 0, &value, 2};
  for (const std::vector<Transfer>& transfers :
       {std::vector<Transfer>{send}, std::vector<Transfer>{receive}, std::vector<Transfer>{send, shorter}}) {
    Alone alone;
    CHECK_THROWS_AS(alone.self->exchange(alone.stream, transfers), RunFailure);
  }
}

TEST_CASE("wrong arguments are refused when the operation is queued", "[self]") {
  Alone alone;
  std::vector<float> values(12);
  const std::vector<std::int64_t> counts = {12};
  const TensorView buffer = view(values);
  const TensorView half = {values.data(), DType::bfloat16, 1, 12};
  CHECK_THROWS_AS(alone.self->all_reduce_sum(alone.stream, half), RunFailure);
  CHECK_THROWS_AS(alone.self->all_reduce_sum(alone.stream, buffer.reshape(3, 4).slice_cols(0, 2)), RunFailure);
  CHECK_THROWS_AS(alone.self->reduce_scatter_sum(alone.stream, buffer, buffer.slice_cols(0, 6), counts), RunFailure);
  CHECK_THROWS_AS(alone.self->all_gather(alone.stream, buffer, half, counts), RunFailure);
  CHECK_THROWS_AS(alone.self->all_gather(alone.stream, buffer.slice_cols(2, 4), buffer.slice_cols(0, 4),
                                         std::vector<std::int64_t>{4}),
                  RunFailure);
  CHECK_THROWS_AS(alone.self->all_gather(alone.stream, buffer, buffer, {}), RunFailure);
  CHECK_THROWS_AS(alone.self->all_gather(alone.stream, buffer, buffer, std::vector<std::int64_t>{-1}), RunFailure);
  CHECK_THROWS_AS(alone.self->broadcast(alone.stream, buffer, 1), RunFailure);
  const Transfer stranger = {Transfer::Kind::send, 1, values.data(), 4};
  CHECK_THROWS_AS(alone.self->exchange(alone.stream, {&stranger, 1}), RunFailure);
  alone.stream.synchronize();
}

TEST_CASE("one rank agrees with itself", "[self][control]") {
  Alone alone;
  for (const bool before_device : {false, true}) {
    ControlChannel control = before_device ? ControlChannel(*alone.self) : ControlChannel(*alone.self, alone.stream);
    CHECK(control.sum(std::int64_t{5}) == 5);
    CHECK(control.max(2.5) == 2.5);
    CHECK(control.broadcast("text") == "text");
    control.barrier();
    control.agree_or_throw("", 0);
    CHECK_THROWS_AS(control.agree_or_throw("bad key", 2), InvalidInput);
    CHECK_THROWS_AS(control.agree_or_throw("disk full", 1), RunFailure);
    CHECK(control.run_together([] { return 7; }) == 7);
    CHECK_THROWS_AS(control.run_together([] { throw_invalid_input("no"); }), InvalidInput);
  }
}
