#include "skrull/comm/rank_grid.h"

#include <string>

#include "skrull/core/error.h"
#include "support/catch.h"

using namespace skrull;

TEST_CASE("rank = data rank x context parallel + context rank", "[rank_grid]") {
  const RankGrid grid = make_rank_grid(8, 6, 4);
  CHECK(grid.data_parallel == 2);
  CHECK(grid.context_parallel == 4);
  CHECK(grid.data_rank == 1);
  CHECK(grid.context_rank == 2);
  for (int world = 1; world <= 12; ++world) {
    for (int context = 1; context <= world; ++context) {
      for (int rank = 0; rank < world && world % context == 0; ++rank) {
        const RankGrid any = make_rank_grid(world, rank, context);
        REQUIRE(any.world_size() == world);
        REQUIRE(any.rank() == rank);
        REQUIRE(any.context_rank < context);
      }
    }
  }
}

TEST_CASE("a context size that does not divide the ranks is the user's error, with the sizes that would do",
          "[rank_grid]") {
  for (const int context : {0, -2, 4, 13}) {
    try {
      make_rank_grid(6, 0, context);
      FAIL("accepted " << context);
    } catch (const InvalidInput& error) {
      const std::string message = error.what();
      CHECK(message.find("context_parallel_size " + std::to_string(context)) != std::string::npos);
      CHECK(message.find("6 ranks") != std::string::npos);
      CHECK(message.find("1, 2, 3, 6") != std::string::npos);
    }
  }
}
