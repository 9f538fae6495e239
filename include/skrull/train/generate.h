#pragma once
// Continuing a prompt, token by token, with a KV cache.

#include <cstdint>
#include <functional>
#include <vector>

#include "skrull/device/device.h"
#include "skrull/model/kv_cache.h"
#include "skrull/model/seams.h"
#include "skrull/model/transformer.h"

namespace skrull {

struct GenerateOptions {
  std::int64_t max_new_tokens = 256;
  double temperature = 0;  ///< 0: the most likely token (the lowest id among equals)
  double top_p = 1;        ///< draw from the fewest most likely tokens whose probabilities reach this sum; in (0, 1]
  std::uint64_t seed = 0;
  std::vector<std::int64_t> eos_token_ids;
};

/// Called for every new token as it comes, the one that ends the text included.
using TokenCallback = std::function<void(std::int32_t id)>;

/// The new ids, the ending token included. Stops at an eos token, after max_new_tokens, or when `cache` is full.
/// `cache` is cleared first; it must hold the prompt. The prompt goes through `model` in pieces of its max_tokens, each
/// new token alone; the same seed gives the same ids. Throws InvalidInput for an empty prompt, one longer than the
/// cache, ids outside the vocabulary, options out of range.
std::vector<std::int32_t> generate(Transformer& model, ParameterProvider& parameters, KvCache& cache, Device& device,
                                   const std::vector<std::int32_t>& prompt, const GenerateOptions& options,
                                   const TokenCallback& on_token = {});

/// One draw: the index for a uniform random number in [0, 1) given logits, as `generate` draws (temperature > 0).
std::int32_t sample_token(const std::vector<float>& logits, double temperature, double top_p, double uniform);

}  // namespace skrull
