#include "reduction.h"

#include <algorithm>
#include <cmath>
#include <type_traits>

#include "skrull/core/error.h"

namespace skrull {
namespace {

struct Sum {
  template <class T>
  T operator()(T a, T b) const {
    return a + b;
  }
};

struct Max {
  template <class T>
  T operator()(T a, T b) const {
    if constexpr (std::is_floating_point_v<T>) {
      return b > a || std::isnan(b) ? b : a;
    } else {
      return std::max(a, b);
    }
  }
};

// In blocks that stay in the first-level cache, so that every source is read once and the target may be a source.
template <class T, class Op>
void reduce_blocks(Op op, std::span<const void* const> sources, void* target, std::int64_t elements) {
  constexpr std::int64_t block = 2048;
  T sums[block];
  for (std::int64_t begin = 0; begin < elements; begin += block) {
    const std::int64_t count = std::min(block, elements - begin);
    std::copy_n(static_cast<const T*>(sources[0]) + begin, count, sums);
    for (const void* source : sources.subspan(1)) {
      const T* values = static_cast<const T*>(source) + begin;
      for (std::int64_t i = 0; i < count; ++i) sums[i] = op(sums[i], values[i]);
    }
    std::copy_n(sums, count, static_cast<T*>(target) + begin);
  }
}

template <class Op>
void reduce_typed(Op op, DType dtype, std::span<const void* const> sources, void* target, std::int64_t elements) {
  switch (dtype) {
    case DType::float32:
      return reduce_blocks<float>(op, sources, target, elements);
    case DType::float64:
      return reduce_blocks<double>(op, sources, target, elements);
    case DType::int64:
      return reduce_blocks<std::int64_t>(op, sources, target, elements);
    default:
      require_reducible(dtype);
  }
}

}  // namespace

void require_reducible(DType dtype) {
  require(dtype == DType::float32 || dtype == DType::float64 || dtype == DType::int64,
          "reductions work on float32, float64 and int64, not on {}", name_of(dtype));
}

void reduce_in_order(ReduceOp op, DType dtype, std::span<const void* const> sources, void* target,
                     std::int64_t elements) {
  require(!sources.empty(), "a reduction without contributions");
  if (op == ReduceOp::sum) {
    reduce_typed(Sum{}, dtype, sources, target, elements);
  } else {
    reduce_typed(Max{}, dtype, sources, target, elements);
  }
}

}  // namespace skrull
