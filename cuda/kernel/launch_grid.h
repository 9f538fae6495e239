#pragma once
// The grid of a launch, and where in the source the launch stands.

#include <vector_types.h>

#include <concepts>
#include <source_location>

namespace skrull {

struct LaunchGrid {
  /// From a dim3 or a number of blocks; made by the call of launch(), so `where` is the caller's line.
  template <std::convertible_to<dim3> Size>
  LaunchGrid(Size blocks, std::source_location position = std::source_location::current())
      : size(blocks), where(position) {}

  bool empty() const { return size.x == 0 || size.y == 0 || size.z == 0; }

  dim3 size;
  std::source_location where;
};

}  // namespace skrull
