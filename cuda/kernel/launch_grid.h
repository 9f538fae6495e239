#pragma once
// The grid of a launch, and where in the source the launch stands.

#include <vector_types.h>

#include <concepts>

#include "kernel/call_position.h"

namespace skrull {

struct LaunchGrid {
  /// From a dim3 or a number of blocks; made by the call of launch(), so `where` is the caller's line.
  template <std::convertible_to<dim3> Size>
  LaunchGrid(Size blocks, CallPosition position = CallPosition::current()) : size(blocks), where(position) {}

  bool empty() const { return size.x == 0 || size.y == 0 || size.z == 0; }

  dim3 size;
  CallPosition where;
};

}  // namespace skrull
