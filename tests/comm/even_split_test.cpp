#include "skrull/comm/even_split.h"

#include "support/catch.h"

using namespace skrull;

TEST_CASE("even parts cover everything once, in order, and differ by at most one", "[even_split]") {
  for (int ranks = 1; ranks <= 17; ++ranks) {
    for (std::int64_t elements = 0; elements <= 70; ++elements) {
      std::int64_t next = 0;
      const std::vector<std::int64_t> counts = even_counts(elements, ranks);
      for (int rank = 0; rank < ranks; ++rank) {
        const Part part = even_part(elements, ranks, rank);
        INFO(elements << " elements, " << ranks << " ranks, rank " << rank);
        REQUIRE(part.begin == next);
        REQUIRE((part.count == elements / ranks || part.count == elements / ranks + 1));
        REQUIRE(counts[static_cast<std::size_t>(rank)] == part.count);
        if (rank > 0) REQUIRE(part.count <= counts[static_cast<std::size_t>(rank) - 1]);
        next = part.end();
      }
      REQUIRE(next == elements);
    }
  }
}

TEST_CASE("an even split counts in 64 bits", "[even_split]") {
  const std::int64_t elements = (std::int64_t{1} << 40) + 3;
  CHECK(even_part(elements, 8, 2).begin == 2 * ((std::int64_t{1} << 37) + 1));
  CHECK(even_part(elements, 8, 3).begin == 3 * ((std::int64_t{1} << 37) + 1));
  CHECK(even_part(elements, 8, 7).end() == elements);
}

TEST_CASE("an even split refuses ranks that are not there", "[even_split]") {
  CHECK_THROWS_AS(even_part(4, 0, 0), RunFailure);
  CHECK_THROWS_AS(even_part(4, 2, 2), RunFailure);
  CHECK_THROWS_AS(even_part(-1, 2, 0), RunFailure);
}
