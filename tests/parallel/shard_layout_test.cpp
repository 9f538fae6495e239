#include "skrull/parallel/shard_layout.h"

#include "parallel/small_model.h"
#include "support/catch.h"

using namespace skrull;

namespace {

/// One flag per element of the block, straight from the table.
std::vector<bool> decays(const ParameterTable& table, int block) {
  std::vector<bool> flags(static_cast<std::size_t>(table.block_elements(block)));
  for (const ParameterSpec& parameter : table.parameters()) {
    for (std::int64_t i = 0; parameter.block == block && i < parameter.elements(); ++i) {
      flags[static_cast<std::size_t>(parameter.offset + i)] = parameter.weight_decay;
    }
  }
  return flags;
}

}  // namespace

TEST_CASE("the owned parts of all ranks, cut into decay runs, cover each element once with its own flag", "[shard]") {
  for (const bool tied : {false, true}) {
    const ParameterTable table = test::small_table(tied);
    for (int block = 0; block < table.block_count(); ++block) {
      const std::vector<bool> flags = decays(table, block);
      for (int ranks = 1; ranks <= 40; ++ranks) {
        std::int64_t next = 0;
        for (int rank = 0; rank < ranks; ++rank) {
          const Part part = owned_part(table, block, ranks, rank);
          REQUIRE(part.begin == next);
          const std::vector<DecayRun> runs = decay_runs(table, block, part);
          for (std::size_t i = 0; i < runs.size(); ++i) {
            REQUIRE(runs[i].part.begin == next);
            REQUIRE(runs[i].part.count > 0);
            if (i > 0) REQUIRE(runs[i].weight_decay != runs[i - 1].weight_decay);  // the fewest runs
            for (; next < runs[i].part.end(); ++next) {
              REQUIRE(flags[static_cast<std::size_t>(next)] == runs[i].weight_decay);
            }
          }
          REQUIRE(next == part.end());
        }
        REQUIRE(next == table.block_elements(block));
      }
    }
  }
}

TEST_CASE("a layer's runs, by hand", "[shard]") {
  // norm 6 | q 6x6, k 2x6, v 2x6 | biases 6 + 2 + 2 | o 6x6 | norm 6 | gate, up, down 3 x 30
  const std::vector<DecayRun> runs = decay_runs(test::small_table(), 1, {0, 208});
  REQUIRE(runs.size() == 6);
  const std::int64_t ends[] = {6, 66, 76, 112, 118, 208};
  for (std::size_t i = 0; i < 6; ++i) {
    CHECK(runs[i].part.end() == ends[i]);
    CHECK(runs[i].weight_decay == (i % 2 == 1));
  }
}
