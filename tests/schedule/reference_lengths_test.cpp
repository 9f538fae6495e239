// The baselines on the reference batches of lengths, where they are on this machine: ratios of mean step times as first
// measured with another implementation of the same rules. They pin what the baselines do where words leave it open:
// how "packed" deals sequences to replicas, and that a roll-back whose shares do not fit fails.

#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "schedule_fixture.h"
#include "skrull/schedule/scheduler.h"
#include "support/catch.h"
#include "support/support.h"

using namespace skrull;
using namespace skrull::test;

namespace {

struct Cell {
  std::string lengths;
  ModelShape model;
  std::int64_t bucket_tokens = 0;
  Topology topology;
  double balanced_over_packed = 0.0;  ///< speed-up of packed-balanced over packed
  double paper_over_packed = 0.0;     ///< of skrull-paper over packed
};

std::vector<Cell> cells() {
  const Topology four_by_eight{4, 8, 8};
  return {{"wikipedia.05b", half_billion(), 26000, four_by_eight, 1.69 / 1.45, 1.69 / 2.31},
          {"lmsys.05b", half_billion(), 26000, four_by_eight, 1.46 / 1.29, 1.46 / 1.79},
          {"chatqa2.05b", half_billion(), 26000, four_by_eight, 1.28 / 1.14, 1.28 / 1.67},
          {"flexsp.05b", half_billion(), 26000, four_by_eight, 1.52 / 1.13, 1.52 / 1.99},
          {"wikipedia.7b", seven_billion(), 13000, four_by_eight, 1.38 / 1.15, 1.38 / 1.92},
          {"lmsys.7b", seven_billion(), 13000, four_by_eight, 1.32 / 1.12, 1.32 / 1.73},
          {"flexsp.7b", seven_billion(), 13000, four_by_eight, 1.51 / 1.08, 1.51 / 1.38},
          {"chatqa2.7b80", seven_billion(), 13000, {2, 16, 8}, 1.57 / 1.48, 1.57 / 1.58}};
}

std::vector<Sequences> read_batches(const std::filesystem::path& file) {
  std::vector<Sequences> batches;
  std::ifstream input(file);
  for (std::string line; std::getline(input, line);) {
    std::istringstream numbers(line);
    Sequences batch;
    for (std::int64_t length = 0; numbers >> length;) batch.push_back(length);
    batches.push_back(std::move(batch));
  }
  return batches;
}

}  // namespace

TEST_CASE("the baselines stand where an earlier implementation put them") {
  const auto folder = reference_data("../schedule");
  if (!folder) return;
  const HardwareProfile profile = read_hardware_profile(*folder / "h100_4x8.profile.json");
  for (const Cell& cell : cells()) {
    INFO(cell.lengths);
    const CostModel cost(cell.model, profile);
    double packed = 0.0;
    double balanced = 0.0;
    double paper = 0.0;
    for (const Sequences& lengths : read_batches(*folder / "lengths" / (cell.lengths + ".txt"))) {
      const auto seconds_of = [&](const std::string& policy) {
        return schedule_seconds(make_plan(policy, {lengths, cell.topology, cell.bucket_tokens}, cost), cost);
      };
      packed += seconds_of("packed");
      balanced += seconds_of("packed-balanced");
      paper += seconds_of("skrull-paper");
    }
    REQUIRE(packed > 0.0);
    // The ratios are given to three digits.
    CHECK(packed / balanced == Approx(cell.balanced_over_packed).epsilon(0.01));
    CHECK(packed / paper == Approx(cell.paper_over_packed).epsilon(0.01));
  }
}
