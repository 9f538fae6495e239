#include "simt/launch.h"

#include <spdlog/fmt/fmt.h>

#include <utility>

#include "simt/simt.h"
#include "simt/stand_in/runtime.h"

namespace skrull::simt {

void queue_kernel(cudaStream_t stream, const LaunchGrid& grid, dim3 block, std::size_t shared_bytes,
                  std::function<void()> kernel) {
  if (grid.empty()) return;
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
