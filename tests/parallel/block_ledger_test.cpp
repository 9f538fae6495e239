#include "block_ledger.h"

#include "block_staging.h"
#include "skrull/core/error.h"
#include "support/catch.h"

using namespace skrull;

TEST_CASE("a step of two micro-batches, blocks ready in any order", "[ledger]") {
  BlockLedger ledger(3);
  for (int step = 0; step < 2; ++step) {
    ledger.begin_step(2);
    CHECK(ledger.open(1));
    CHECK(ledger.in_first_micro_batch(1));
    CHECK_FALSE(ledger.open(1));
    CHECK_FALSE(ledger.ready(1));
    CHECK(ledger.open(2));
    CHECK_FALSE(ledger.ready(2));
    CHECK(ledger.open(0));
    CHECK_FALSE(ledger.ready(0));
    CHECK(ledger.open(0));
    CHECK_FALSE(ledger.in_first_micro_batch(0));  // goes on adding
    CHECK_FALSE(ledger.open(0));
    CHECK(ledger.ready(0));
    CHECK(ledger.ready(1));
    CHECK(ledger.ready(2));
    ledger.finish_gradients();
    ledger.require_finished("norm");
    if (step == 0) ledger.update();  // the second step is skipped
  }
  ledger.begin_step(1);
}

TEST_CASE("misuse of blocks is an error", "[ledger]") {
  BlockLedger ledger(2);
  SECTION("released without being acquired") {
    ledger.acquire(1);
    ledger.release(1);
    CHECK_THROWS_AS(ledger.release(1), RunFailure);
    CHECK_THROWS_AS(ledger.acquire(2), RunFailure);
    CHECK_THROWS_AS(ledger.acquire(-1), RunFailure);
  }
  SECTION("acquired and not released") {
    ledger.acquire(0);
    CHECK_THROWS_AS(ledger.begin_step(1), RunFailure);
    CHECK_THROWS_AS(ledger.require_between_steps("save"), RunFailure);
    ledger.release(0);
    ledger.begin_step(1);
    ledger.ready(0);
    ledger.ready(1);
    ledger.acquire(0);
    ledger.acquire(0);
    ledger.release(0);
    CHECK_THROWS_AS(ledger.finish_gradients(), RunFailure);
    ledger.release(0);
    ledger.finish_gradients();
  }
  SECTION("ready twice in a micro-batch") {
    ledger.begin_step(2);
    ledger.ready(0);
    CHECK_THROWS_AS(ledger.ready(0), RunFailure);
  }
  SECTION("added to after it was ready") {
    ledger.begin_step(2);
    ledger.ready(0);
    CHECK_THROWS_AS(ledger.open(0), RunFailure);
    ledger.ready(1);
    ledger.open(0);
    ledger.ready(0);
    ledger.ready(1);
    CHECK_THROWS_AS(ledger.open(0), RunFailure);
    CHECK_THROWS_AS(ledger.ready(1), RunFailure);
  }
  SECTION("out of order") {
    CHECK_THROWS_AS(ledger.open(0), RunFailure);
    CHECK_THROWS_AS(ledger.ready(0), RunFailure);
    CHECK_THROWS_AS(ledger.finish_gradients(), RunFailure);
    CHECK_THROWS_AS(ledger.update(), RunFailure);
    CHECK_THROWS_AS(ledger.begin_step(0), RunFailure);
    ledger.begin_step(1);
    CHECK_THROWS_AS(ledger.begin_step(1), RunFailure);
    CHECK_THROWS_AS(ledger.require_between_steps("save"), RunFailure);
    ledger.ready(0);
    CHECK_THROWS_AS(ledger.finish_gradients(), RunFailure);  // block 1 is missing
    ledger.ready(1);
    CHECK_THROWS_AS(ledger.require_finished("norm"), RunFailure);
    ledger.finish_gradients();
    ledger.update();
    CHECK_THROWS_AS(ledger.update(), RunFailure);
  }
}

TEST_CASE("staging brings one block at a time to the host and back", "[ledger]") {
  const auto device = make_cpu_device(1);
  const Buffer first = device->allocate(DType::float32, 1, 3, "test");
  const Buffer second = device->allocate(DType::float32, 1, 5, "test");
  const std::vector<TensorView> blocks = {first.view(DType::float32, 1, 3), second.view(DType::float32, 1, 5)};
  const std::vector<BlockStaging::Held> held = {{blocks[0], {0, 3}, 3}, {blocks[1], {0, 5}, 5}};
  BlockStaging writer(*device, held, BlockStaging::Access::write);
  writer.block(0).as<float>()[1] = 4;
  CHECK(blocks[0].as<float>()[1] == 0);
  writer.block(1).as<float>()[4] = 5;
  CHECK(blocks[0].as<float>()[1] == 4);
  CHECK(writer.block(0).as<float>()[1] == 4);  // asked for again: what is on the device
  writer.block(0).as<float>()[2] = 6;
  writer.finish();
  CHECK(blocks[0].as<float>()[2] == 6);
  CHECK(blocks[1].as<float>()[4] == 5);

  BlockStaging reader(*device, held, BlockStaging::Access::read);
  CHECK(reader.block(1).as<float>()[4] == 5);
  reader.block(1).as<float>()[4] = 7;
  CHECK(reader.block(0).elements() == 3);
  reader.finish();
  CHECK(blocks[1].as<float>()[4] == 5);
}

TEST_CASE("staging in memory that is given", "[ledger]") {
  const auto device = make_cpu_device(1);
  const Buffer buffer = device->allocate(DType::float32, 1, 2, "test");
  const Buffer given = device->allocate(DType::float32, 1, 6, "test");
  const TensorView part = buffer.view(DType::float32, 1, 2);
  BlockStaging writer(*device, {{part, {1, 2}, 4}}, BlockStaging::Access::write,
                      [&](int) { return given.view(DType::float32, 1, 6); });
  CHECK(writer.block(0).data() == given.data());
  writer.block(0).as<float>()[2] = 8;
  writer.finish();
  CHECK(part.as<float>()[0] == 0);
  CHECK(part.as<float>()[1] == 8);
}

TEST_CASE("staging of a part: the device gets what it holds of a block", "[ledger]") {
  const auto device = make_cpu_device(1);
  const Buffer buffer = device->allocate(DType::float32, 1, 2, "test");
  const TensorView part = buffer.view(DType::float32, 1, 2);
  BlockStaging writer(*device, {{part, {3, 2}, 7}, {TensorView(nullptr, DType::float32, 1, 0), {2, 0}, 2}},
                      BlockStaging::Access::write);
  const TensorView whole = writer.block(0);
  REQUIRE(whole.elements() == 7);
  for (int i = 0; i < 7; ++i) whole.as<float>()[i] = static_cast<float>(10 + i);
  writer.block(1).as<float>()[0] = -1;  // a block of which nothing is held
  CHECK(writer.block(0).as<float>()[3] == 13);
  writer.block(0).as<float>()[4] = 40;
  writer.finish();
  CHECK(part.as<float>()[0] == 13);
  CHECK(part.as<float>()[1] == 40);
}
