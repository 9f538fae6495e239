#pragma once
// Synthetic global batches: lengths drawn like those of known data sets, to plan without the data.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace skrull {

/// A point of a cumulative distribution: `share` of the sequences have fewer than `tokens` tokens.
struct LengthShare {
  std::int64_t tokens = 0;
  double share = 0.0;
};

/// Sequence lengths of a data set: log-uniform between the points of its cumulative distribution.
struct LengthDistribution {
  std::string_view name;
  std::string_view description;
  /// Ascending in both; the first share is 0, the last 1.
  std::vector<LengthShare> points;
};

/// wikipedia, lmsys, chatqa2 (the length table of the Skrull paper), long-tail, bimodal.
const std::vector<LengthDistribution>& length_distributions();

/// The one called `name`. Throws InvalidInput that lists the names.
const LengthDistribution& find_length_distribution(const std::string& name);

/// `batches` global batches of `batch_size` lengths in [1, longest]: longer draws are clamped. The same for the same
/// seed on every platform; a batch does not depend on how many are drawn.
std::vector<std::vector<std::int64_t>> draw_length_batches(const LengthDistribution& distribution, std::int64_t batches,
                                                           std::int64_t batch_size, std::int64_t longest,
                                                           std::uint64_t seed);

}  // namespace skrull
