#pragma once
// Seeded random numbers, the same on every platform (the standard library's distributions are not).

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

namespace skrull {

/// Counter-based: the value depends on (key, counter) alone, so any shard of a tensor can be drawn by any rank.
/// SplitMix64's finaliser over both words (Steele, Lea, Flood 2014).
std::uint64_t random_bits(std::uint64_t key, std::uint64_t counter);

/// Key of a named stream of a seed, e.g. (seed, "model.norm.weight").
std::uint64_t random_key(std::uint64_t seed, std::string_view stream);

/// Element `counter` of the standard normal stream `key` (Box-Muller).
double random_normal(std::uint64_t key, std::uint64_t counter);

/// Draws one after the other from one stream.
class Rng {
 public:
  explicit Rng(std::uint64_t key) : key_(key) {}
  Rng(std::uint64_t seed, std::string_view stream) : Rng(random_key(seed, stream)) {}

  std::uint64_t bits() { return random_bits(key_, counter_++); }
  /// Uniform in [0, 1), 53 bits.
  double uniform();
  /// Uniform in [0, bound), unbiased; bound >= 1.
  std::uint64_t below(std::uint64_t bound);
  /// Standard normal.
  double normal();

  /// Fisher-Yates.
  template <class T>
  void shuffle(std::vector<T>& values) {
    for (std::size_t i = values.size(); i > 1; --i) std::swap(values[i - 1], values[below(i)]);
  }

 private:
  std::uint64_t key_;
  std::uint64_t counter_ = 0;
};

}  // namespace skrull
