#include "cpu_cores.h"

#include <algorithm>
#include <set>

#include "support/catch.h"

using namespace skrull;

TEST_CASE("hardware threads are grouped into cores, sockets stay together", "[cpu_cores]") {
  // Two sockets of two cores, numbered as Linux does with hyper-threading: CPU 4..7 are the second threads.
  const std::vector<CpuCore> cores =
      group_into_cores({{0, 0, 0}, {1, 1, 0}, {2, 0, 1}, {3, 1, 1}, {4, 0, 0}, {5, 1, 0}, {6, 0, 1}, {7, 1, 1}});
  CHECK(cores == std::vector<CpuCore>{{0, 4}, {2, 6}, {1, 5}, {3, 7}});
}

TEST_CASE("ranks share cores evenly and disjointly", "[cpu_cores]") {
  for (int count = 1; count <= 12; ++count) {
    std::vector<CpuCore> cores;
    for (int core = 0; core < count; ++core) cores.push_back({core, core + count});
    for (int ranks = 1; ranks <= 15; ++ranks) {
      std::multiset<int> used;
      for (int rank = 0; rank < ranks; ++rank) {
        const std::vector<CpuCore> share = share_of_cores(cores, rank, ranks);
        REQUIRE(static_cast<int>(share.size()) >= std::max(count / ranks, 1));
        REQUIRE(static_cast<int>(share.size()) <= std::max((count + ranks - 1) / ranks, 1));
        for (const CpuCore& core : share) {
          REQUIRE(core.size() == 2);  // a core is never cut
          used.insert(core.begin(), core.end());
        }
      }
      for (int core = 0; core < count; ++core) {
        const auto users = static_cast<int>(used.count(core));
        REQUIRE(users >= (ranks <= count ? 1 : ranks / count));
        REQUIRE(users <= (ranks <= count ? 1 : (ranks + count - 1) / count));
      }
    }
  }
}

TEST_CASE("CPU lists are written as ranges", "[cpu_cores]") {
  CHECK(format_cpu_list({}).empty());
  CHECK(format_cpu_list({5}) == "5");
  CHECK(format_cpu_list({3, 0, 1, 2, 8}) == "0-3,8");
  CHECK(format_cpu_list({7, 5}) == "5,7");
}
