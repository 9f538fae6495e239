#pragma once
// The grid of a launch, and where in the source the launch stands.

#include <vector_types.h>

#include <concepts>
#include <utility>

#include "kernel/call_position.h"
#include "skrull/core/error.h"

namespace skrull {

struct LaunchGrid {
  /// Made by the call of launch(), so that `where` is the caller's line.
  LaunchGrid(dim3 blocks, CallPosition position = CallPosition::current()) : size(blocks), where(position) {}
  /// A number of blocks; throws RunFailure when a GPU cannot count so far.
  template <std::integral Count>
  LaunchGrid(Count blocks, CallPosition position = CallPosition::current()) : where(position) {
    require(std::in_range<int>(blocks) && std::cmp_greater_equal(blocks, 0), "a grid of {} blocks at {}:{}", blocks,
            where.file, where.line);
    size = dim3(static_cast<unsigned>(blocks));
  }

  bool empty() const { return size.x == 0 || size.y == 0 || size.z == 0; }

  dim3 size;
  CallPosition where;
};

}  // namespace skrull
