#include "skrull/schedule/length_generator.h"

#include <algorithm>
#include <cmath>

#include "skrull/core/error.h"
#include "skrull/core/rng.h"
#include "skrull/core/text.h"

namespace skrull {
namespace {

constexpr std::int64_t k = 1024;

/// The share below which a uniform draw falls, turned into a length.
std::int64_t length_at(const LengthDistribution& distribution, double share) {
  const auto above = std::upper_bound(distribution.points.begin(), distribution.points.end() - 1, share,
                                      [](double value, const LengthShare& point) { return value < point.share; });
  const LengthShare& low = *(above - 1);
  const LengthShare& high = *above;
  const double part = (share - low.share) / (high.share - low.share);
  const auto from = static_cast<double>(low.tokens);
  return static_cast<std::int64_t>(from * std::pow(static_cast<double>(high.tokens) / from, part));
}

std::vector<std::string> distribution_names() {
  std::vector<std::string> names;
  for (const LengthDistribution& distribution : length_distributions()) names.emplace_back(distribution.name);
  return names;
}

}  // namespace

const std::vector<LengthDistribution>& length_distributions() {
  // Shares at 1K, 4K, 8K, 32K, 128K and the longest length are the Skrull paper's (arXiv 2505.19609). The paper says
  // nothing of the lengths below 1K and between 1K and 4K, where most sequences lie: those points are assumed, such
  // that the density falls smoothly as it does in chat and encyclopedia text.
  static const std::vector<LengthDistribution> distributions = {
      {"wikipedia",
       "short articles of Chinese Wikipedia, a thin tail to 78K",
       {{16, 0.0},
        {64, 0.095},
        {256, 0.50},
        {k, 0.8788},
        {2 * k, 0.975},
        {4 * k, 0.9934},
        {8 * k, 0.9992},
        {32 * k, 0.9999},
        {78 * k, 1.0}}},
      {"lmsys",
       "short chats of LMSYS-Chat-1M, rare ones up to 1.6M tokens",
       {{16, 0.0},
        {64, 0.095},
        {256, 0.50},
        {k, 0.8712},
        {2 * k, 0.975},
        {4 * k, 0.9935},
        {8 * k, 0.9987},
        {32 * k, 0.9998},
        {128 * k, 0.9999},
        {1643 * k, 1.0}}},
      {"chatqa2",
       "ChatQA2-Long-SFT, most sequences between 8K and 32K, 99K the longest",
       {{32, 0.0}, {256, 0.0850}, {k, 0.2192}, {4 * k, 0.3148}, {8 * k, 0.4043}, {32 * k, 0.9986}, {99 * k, 1.0}}},
      {"long-tail",
       "a power law from 256 to 256K, half as many sequences above twice the length",
       {{256, 0.0},
        {512, 0.5},
        {k, 0.75},
        {2 * k, 0.875},
        {4 * k, 0.9375},
        {8 * k, 0.96875},
        {16 * k, 0.984375},
        {32 * k, 0.9921875},
        {64 * k, 0.99609375},
        {128 * k, 0.998046875},
        {256 * k, 1.0}}},
      {"bimodal",
       "nine short chats (256 to 2K) for every long document (32K to 64K)",
       {{256, 0.0}, {2 * k, 0.9}, {32 * k, 0.900001}, {64 * k, 1.0}}},
  };
  return distributions;
}

const LengthDistribution& find_length_distribution(const std::string& name) {
  for (const LengthDistribution& distribution : length_distributions()) {
    if (distribution.name == name) return distribution;
  }
  const std::string near = nearest(name, distribution_names());
  throw_invalid_input("unknown length distribution \"{}\"{}; known: {}", name,
                      near.empty() ? "" : fmt::format(" (did you mean \"{}\"?)", near),
                      fmt::join(distribution_names(), ", "));
}

std::vector<std::vector<std::int64_t>> draw_length_batches(const LengthDistribution& distribution, std::int64_t batches,
                                                           std::int64_t batch_size, std::int64_t longest,
                                                           std::uint64_t seed) {
  require(batches >= 0 && batch_size >= 1 && longest >= 1, "{} batches of {} lengths up to {}", batches, batch_size,
          longest);
  Rng rng(seed, distribution.name);
  std::vector<std::vector<std::int64_t>> drawn(static_cast<std::size_t>(batches));
  for (auto& batch : drawn) {
    batch.resize(static_cast<std::size_t>(batch_size));
    for (std::int64_t& length : batch)
      length = std::clamp<std::int64_t>(length_at(distribution, rng.uniform()), 1, longest);
  }
  return drawn;
}

}  // namespace skrull
