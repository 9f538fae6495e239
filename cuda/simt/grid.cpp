#include <spdlog/fmt/fmt.h>

#include <cstdlib>
#include <numeric>
#include <random>
#include <vector>

#include "simt/block.h"
#include "simt/simt.h"

namespace skrull::simt {
namespace {

constexpr std::uint64_t max_threads = 1024;

std::uint64_t count(dim3 size) {
  return std::uint64_t{size.x} * size.y * size.z;
}

/// The blocks' numbers in the order in which they run.
std::vector<std::uint64_t> block_order(std::uint64_t blocks) {
  std::vector<std::uint64_t> order(blocks);
  std::iota(order.begin(), order.end(), 0);
  if (options().seed == 0) return order;
  std::mt19937_64 random(options().seed);
  for (std::uint64_t i = blocks; i > 1; --i) std::swap(order[i - 1], order[random() % i]);
  return order;
}

std::uint64_t seed_of_environment() {
  const char* seed = std::getenv("SKRULL_SIMT_SEED");
  return seed != nullptr ? std::strtoull(seed, nullptr, 10) : 0;
}

}  // namespace

Options& options() {
  static Options options{seed_of_environment()};
  return options;
}

void run_grid(dim3 grid, dim3 block, std::size_t dynamic_shared_bytes, const std::function<void()>& kernel) {
  if (count(block) == 0 || count(block) > max_threads) {
    fail(fmt::format("a block of {} x {} x {} threads; 1 to {} are possible", block.x, block.y, block.z, max_threads));
  }
  if (grid.y > 65535 || grid.z > 65535 || grid.x > 0x7fffffffu) {
    fail(fmt::format("a grid of {} x {} x {} blocks; at most 2147483647 x 65535 x 65535 are possible", grid.x, grid.y,
                     grid.z));
  }
  if (dynamic_shared_bytes > max_shared_bytes) {
    fail(fmt::format("{} bytes of dynamic shared memory; a block has {} on every architecture", dynamic_shared_bytes,
                     max_shared_bytes));
  }
  Block executed(grid, block, dynamic_shared_bytes, kernel);
  for (const std::uint64_t i : block_order(count(grid))) {
    const auto x = static_cast<unsigned>(i % grid.x);
    const auto y = static_cast<unsigned>(i / grid.x % grid.y);
    const auto z = static_cast<unsigned>(i / (std::uint64_t{grid.x} * grid.y));
    executed.run({x, y, z});
  }
  acquire(&kernel);  // not before: nothing orders blocks among themselves
}

}  // namespace skrull::simt
