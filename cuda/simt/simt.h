#pragma once
// Runs CUDA kernels on the CPU. A block's threads are fibers that switch at collectives alone; the blocks of a grid run
// one after another. Threads and blocks run in an order drawn by a seed, so what depends on the order shows as wrong
// values under some seed, and what breaks a rule of the machine is an Error that names thread and call site.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <stdexcept>

#include "vector_types.h"

namespace skrull::simt {

/// A kernel did what a GPU does not allow or does not define. The kernel did not run to its end.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

struct Options {
  /// The order in which threads and blocks run: at random, but for 0: lowest numbers first, and one warp as far as it
  /// gets. Set by SKRULL_SIMT_SEED at first.
  std::atomic<std::uint64_t> seed{0};
};
/// Of this process; read at the start of each launch.
Options& options();

/// Shared memory that a kernel may have on every architecture of the product (sm_80 has least), and as static arrays.
inline constexpr std::size_t max_shared_bytes = 163 << 10;
inline constexpr std::size_t max_static_shared_bytes = 48 << 10;

/// Runs `kernel` once for every thread of the grid, in the caller. Throws Error.
void run_grid(dim3 grid, dim3 block, std::size_t dynamic_shared_bytes, const std::function<void()>& kernel);

}  // namespace skrull::simt
