#pragma once
// The samples of a data set, for people: lengths, and one sample with its trained part marked.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "skrull/data/sample.h"
#include "skrull/data/token_store.h"

namespace skrull {

struct LengthStatistics {
  std::int64_t samples = 0;
  std::int64_t shortest = 0;  ///< tokens
  std::int64_t median = 0;    ///< the lower one of two
  std::int64_t longest = 0;
  std::int64_t longest_sample = 0;  ///< the first of them, index into the store
  std::int64_t tokens = 0;          ///< of all samples
  std::int64_t supervised = 0;      ///< of all samples
};

/// At least one sample.
LengthStatistics measure_lengths(const TokenStore& store, const std::vector<std::int64_t>& samples);

/// "3,190 samples, 732,114 tokens, 210,332 of them trained; lengths 12 to 11,561, median 149".
std::string describe_lengths(const LengthStatistics& statistics);

/// A warning when samples are longer than the model's positions, naming the longest; rotary positions go on, so it is
/// no error.
std::optional<std::string> position_limit_warning(const TokenStore& store, const LengthStatistics& statistics,
                                                  std::int64_t max_position_embeddings);

/// The text of a sample with the trained tokens between ⟦ and ⟧ and long parts shortened; ids when `encoder` is null.
/// Safe to print: bytes that are not UTF-8 and control characters are replaced.
std::string describe_sample(const TokenStore& store, std::int64_t sample, const TextEncoder* encoder);

}  // namespace skrull
