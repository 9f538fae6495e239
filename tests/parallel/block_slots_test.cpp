#include "block_slots.h"

#include <algorithm>

#include "block_walk.h"
#include "parallel/small_model.h"
#include "skrull/core/error.h"
#include "support/catch.h"

using namespace skrull;
using Blocks = std::vector<int>;

namespace {

ParameterTable table_of(std::int64_t layers, bool tied) {
  Qwen2Config config = test::small_config(tied);
  config.num_layers = layers;
  return ParameterTable(config);
}

}  // namespace

TEST_CASE("slots hold the largest block of their kind", "[slots]") {
  const ParameterTable table = table_of(3, false);  // 0 embedding, 1 2 3 layers, 4 final norm, 5 head
  const BlockSlots slots(table);
  const std::int64_t layer = table.block_elements(1);
  CHECK(slots.elements() == std::vector<std::int64_t>{11 * 6, 6, layer, layer});
  CHECK(slots.slots_of(0) == slots.slots_of(5));
  CHECK(slots.slots_of(1) == Blocks{2, 3});
  CHECK(slots.slots_of(4) == Blocks{1});
}

TEST_CASE("a slot goes to the block whose use is longest ago", "[slots]") {
  SlotOccupancy occupancy{BlockSlots(table_of(3, false))};
  CHECK(occupancy.find(1) == -1);
  const int first = occupancy.take(1);
  occupancy.begin_use(first);
  const int second = occupancy.take(2);
  CHECK(second != first);
  CHECK(occupancy.find(1) == first);
  CHECK(occupancy.find(2) == second);
  occupancy.begin_use(second);
  CHECK_FALSE(occupancy.can_take(3));
  CHECK_THROWS_AS(occupancy.take(3), RunFailure);
  CHECK_THROWS_AS(occupancy.clear(), RunFailure);
  CHECK(occupancy.can_take(0));  // another kind
  occupancy.end_use(second);
  occupancy.end_use(first);
  CHECK(occupancy.take(3) == first);
  CHECK(occupancy.find(1) == -1);
  CHECK(occupancy.find(2) == second);
  CHECK_THROWS_AS(occupancy.end_use(first), RunFailure);
  // Taken again, a block lies in one slot only.
  occupancy.begin_use(occupancy.take(2));
  occupancy.end_use(occupancy.find(2));
  CHECK(occupancy.take(2) != occupancy.take(3));
  occupancy.clear();
  CHECK(occupancy.find(3) == -1);
}

TEST_CASE("what comes next in forward and backward", "[slots]") {
  BlockWalk walk(table_of(3, false));
  walk.begin_step(2);
  CHECK(walk.upcoming() == Blocks{0, 1});  // the embedding is too short to hide a gather
  for (int micro_batch = 0; micro_batch < 2; ++micro_batch) {
    const bool last = micro_batch == 1;
    const std::vector<std::pair<int, Blocks>> expected = {
        {0, {1}},    {1, {2}}, {2, {3}}, {3, {4, 5}}, {4, {5}},
        {5, {4, 3}}, {4, {3}}, {3, {2}}, {2, {1}},    {1, last ? Blocks{} : Blocks{0, 1}}};
    for (const auto& [block, next] : expected) {
      INFO("block " << block << " in micro-batch " << micro_batch);
      walk.advance(block);
      CHECK(walk.upcoming() == next);
    }
  }
  walk.rewind();  // the update
  CHECK(walk.upcoming() == Blocks{0, 1});
  for (int evaluation = 0; evaluation < 2; ++evaluation) {
    for (int block = 0; block < 5; ++block) walk.advance(block);
    CHECK(walk.upcoming() == Blocks{5});
    walk.advance(5);
    CHECK(walk.upcoming() == Blocks{0, 1});
  }
}

TEST_CASE("a tied embedding comes twice", "[slots]") {
  BlockWalk walk(table_of(1, true));  // 0 embedding and head, 1 layer, 2 final norm
  walk.begin_step(1);
  walk.advance(0);
  walk.advance(1);
  CHECK(walk.upcoming() == Blocks{2, 0});
  walk.advance(2);
  CHECK(walk.upcoming() == Blocks{0});
  walk.advance(0);
  CHECK(walk.upcoming() == Blocks{2, 1});
}

TEST_CASE("an order that is not the model's is followed without foretelling", "[slots]") {
  BlockWalk walk(table_of(3, false));
  walk.advance(2);
  CHECK(walk.upcoming().empty());
  walk.advance(1);
  CHECK(walk.upcoming().empty());
  walk.advance(0);  // a micro-batch begins
  CHECK(walk.upcoming() == Blocks{1});
  walk.advance(3);
  CHECK(walk.upcoming().empty());
}
