#include "skrull/core/rng.h"

#include <cmath>
#include <numbers>

namespace skrull {
namespace {

std::uint64_t mix(std::uint64_t word) {
  word += 0x9E3779B97F4A7C15ULL;
  word = (word ^ (word >> 30U)) * 0xBF58476D1CE4E5B9ULL;
  word = (word ^ (word >> 27U)) * 0x94D049BB133111EBULL;
  return word ^ (word >> 31U);
}

/// Uniform in (0, 1]: never zero, so that its logarithm is finite.
double unit_interval(std::uint64_t bits) {
  return (static_cast<double>(bits >> 11U) + 1.0) * 0x1p-53;
}

}  // namespace

std::uint64_t random_bits(std::uint64_t key, std::uint64_t counter) {
  return mix(key ^ mix(counter));
}

std::uint64_t random_key(std::uint64_t seed, std::string_view stream) {
  std::uint64_t key = mix(seed);
  for (const char letter : stream) key = mix(key ^ static_cast<unsigned char>(letter));
  return key;
}

double random_normal(std::uint64_t key, std::uint64_t counter) {
  const double radius = std::sqrt(-2.0 * std::log(unit_interval(random_bits(key, 2 * counter))));
  return radius * std::cos(2.0 * std::numbers::pi * unit_interval(random_bits(key, 2 * counter + 1)));
}

double Rng::uniform() {
  return static_cast<double>(bits() >> 11U) * 0x1p-53;
}

std::uint64_t Rng::below(std::uint64_t bound) {
  // Values under 2^64 mod bound would make the small remainders more likely: draw again (Lemire 2019, classic form).
  const std::uint64_t rejected = (0 - bound) % bound;
  std::uint64_t value = bits();
  while (value < rejected) value = bits();
  return value % bound;
}

double Rng::normal() {
  return random_normal(key_, counter_++);
}

}  // namespace skrull
