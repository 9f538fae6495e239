#include "skrull/schedule/length_generator.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "skrull/core/error.h"
#include "support/catch.h"

using namespace skrull;

namespace {

constexpr std::int64_t k = 1024;
constexpr std::int64_t no_limit = 1 << 30;

double share_below(const std::vector<std::int64_t>& lengths, std::int64_t limit) {
  const auto below = std::count_if(lengths.begin(), lengths.end(), [&](std::int64_t length) { return length < limit; });
  return static_cast<double>(below) / static_cast<double>(lengths.size());
}

}  // namespace

TEST_CASE("drawn lengths match the length table of the Skrull paper") {
  struct Row {
    std::string name;
    std::vector<double> shares;  ///< below 1K, 4K, 8K, 32K, 128K
    std::int64_t longest;
  };
  const std::vector<Row> table = {{"wikipedia", {0.8788, 0.9934, 0.9992, 0.9999, 1.0}, 78 * k},
                                  {"lmsys", {0.8712, 0.9935, 0.9987, 0.9998, 0.9999}, 1643 * k},
                                  {"chatqa2", {0.2192, 0.3148, 0.4043, 0.9986, 1.0}, 99 * k}};
  const std::vector<std::int64_t> limits = {k, 4 * k, 8 * k, 32 * k, 128 * k};
  constexpr std::int64_t draws = 400000;
  for (const Row& row : table) {
    INFO(row.name);
    const auto lengths = draw_length_batches(find_length_distribution(row.name), 1, draws, no_limit, 1).front();
    for (std::size_t i = 0; i < limits.size(); ++i) {
      // Four standard deviations of a share, plus the table's rounding.
      const double deviation = std::sqrt(row.shares[i] * (1.0 - row.shares[i]) / static_cast<double>(draws));
      CHECK(std::abs(share_below(lengths, limits[i]) - row.shares[i]) <= 4.0 * deviation + 1e-4);
    }
    const auto [least, most] = std::minmax_element(lengths.begin(), lengths.end());
    CHECK(*least >= 16);
    CHECK(*most < row.longest);
    CHECK(*most > row.longest / 2);
  }
}

TEST_CASE("made-up distributions") {
  const auto tail = draw_length_batches(find_length_distribution("long-tail"), 1, 100000, no_limit, 1).front();
  for (const std::int64_t length : {512, 1024, 8192, 32768}) {
    CHECK(1.0 - share_below(tail, length) == Approx(256.0 / static_cast<double>(length)).epsilon(0.15));
  }
  const auto two = draw_length_batches(find_length_distribution("bimodal"), 1, 10000, no_limit, 1).front();
  CHECK(share_below(two, 2 * k) == Approx(0.9).margin(0.02));
  CHECK(share_below(two, 32 * k) - share_below(two, 2 * k) < 0.001);
}

TEST_CASE("drawn lengths are clamped, seeded, and a batch does not depend on the number of batches") {
  for (const LengthDistribution& distribution : length_distributions()) {
    INFO(distribution.name);
    const auto batches = draw_length_batches(distribution, 3, 50, 1000, 7);
    REQUIRE(batches.size() == 3);
    for (const auto& batch : batches) {
      REQUIRE(batch.size() == 50);
      CHECK(std::all_of(batch.begin(), batch.end(), [](std::int64_t l) { return l >= 1 && l <= 1000; }));
    }
    CHECK(draw_length_batches(distribution, 3, 50, 1000, 7) == batches);
    CHECK(draw_length_batches(distribution, 1, 50, 1000, 7).front() == batches.front());
    CHECK(draw_length_batches(distribution, 3, 50, 1000, 8) != batches);
    CHECK(batches[0] != batches[1]);
    CHECK(distribution.points.front().share == 0.0);
    CHECK(distribution.points.back().share == 1.0);
  }
  CHECK_THROWS_AS(find_length_distribution("wikipdia"), InvalidInput);
}
