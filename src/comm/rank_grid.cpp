#include "skrull/comm/rank_grid.h"

#include <string>

#include "skrull/core/error.h"

namespace skrull {
namespace {

std::string divisors(int number) {
  std::string list;
  for (int divisor = 1; divisor <= number; ++divisor) {
    if (number % divisor == 0) list += (list.empty() ? "" : ", ") + std::to_string(divisor);
  }
  return list;
}

}  // namespace

RankGrid make_rank_grid(int world_size, int rank, int context_parallel) {
  require(world_size >= 1 && rank >= 0 && rank < world_size, "rank {} of {} ranks", rank, world_size);
  if (context_parallel < 1 || world_size % context_parallel != 0) {
    throw_invalid_input(
        "context_parallel_size {} does not divide the {} ranks of this run: choose one of {}, or start another number "
        "of ranks",
        context_parallel, world_size, divisors(world_size));
  }
  return {world_size / context_parallel, context_parallel, rank / context_parallel, rank % context_parallel};
}

}  // namespace skrull
