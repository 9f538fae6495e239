#include "simt/launch.h"

#include <spdlog/fmt/fmt.h>

#include <mutex>
#include <utility>

#include "simt/simt.h"
#include "simt/stand_in/runtime.h"

namespace skrull::simt {
namespace {

struct Launched {
  std::mutex mutex;
  std::set<const void*> functions;
};
Launched& launched() {
  static Launched launched;
  return launched;
}

}  // namespace

std::set<const void*> launched_kernels() {
  const std::lock_guard lock(launched().mutex);
  return launched().functions;
}

void queue_kernel(cudaStream_t stream, const LaunchGrid& grid, dim3 block, std::size_t shared_bytes,
                  const void* function, std::function<void()> kernel) {
  if (grid.empty()) return;
  {
    const std::lock_guard lock(launched().mutex);
    launched().functions.insert(function);
  }
  auto run = [=, kernel = std::move(kernel)] {
    try {
      run_grid(grid.size, block, shared_bytes, kernel);
    } catch (const Error& error) {
      throw Error(fmt::format("kernel launched at {}:{}: {}", grid.where.file, grid.where.line, error.what()));
    }
  };
  if (stream == nullptr) return run();
  queue_step(stream, whole_step(std::move(run)));
}

}  // namespace skrull::simt
