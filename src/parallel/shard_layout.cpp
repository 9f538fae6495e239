#include "skrull/parallel/shard_layout.h"

#include <algorithm>

#include "skrull/core/error.h"

namespace skrull {

Sharding make_sharding(int zero_stage, int ranks, int rank) {
  require(zero_stage >= 0 && zero_stage <= 3 && ranks >= 1 && rank >= 0 && rank < ranks,
          "ZeRO stage {} on rank {} of {}", zero_stage, rank, ranks);
  return {ranks == 1 ? 0 : zero_stage, ranks, rank};
}

Part owned_part(const ParameterTable& table, int block, int ranks, int rank) {
  return even_part(table.block_elements(block), ranks, rank);
}

std::vector<DecayRun> decay_runs(const ParameterTable& table, int block, Part part) {
  std::vector<DecayRun> runs;
  std::int64_t next = part.begin;
  for (const ParameterSpec& parameter : table.parameters_of(block)) {
    const std::int64_t begin = std::max(parameter.offset, part.begin);
    const std::int64_t end = std::min(parameter.offset + parameter.elements(), part.end());
    if (begin >= end) continue;
    require(begin == next, "block {}: elements {} to {} before {} belong to no parameter", block, next, begin,
            parameter.name);
    if (runs.empty() || runs.back().weight_decay != parameter.weight_decay) {
      runs.push_back({{begin, 0}, parameter.weight_decay});
    }
    runs.back().part.count += end - begin;
    next = end;
  }
  require(next == part.end(), "block {}: elements {} to {} belong to no parameter", block, next, part.end());
  return runs;
}

}  // namespace skrull
