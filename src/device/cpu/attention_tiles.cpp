#include "cpu/attention_tiles.h"

#include <cstdlib>
#include <memory>
#include <utility>
#include <vector>

namespace skrull::attention {

namespace {

/// Lane j of x[i] and lane i of x[j] change places: every round interleaves rows half a block apart.
template <std::size_t... kLanes>
[[gnu::always_inline]] inline void transpose(Floats (&x)[lanes], std::index_sequence<kLanes...>) {
  constexpr int half = lanes / 2;
  for (int round = 1; round < lanes; round *= 2) {
    Floats y[lanes];
#pragma GCC unroll 8
    for (int i = 0; i < half; ++i) {
      y[2 * i] = __builtin_shufflevector(x[i], x[i + half], static_cast<int>(kLanes / 2 + kLanes % 2 * lanes)...);
      y[2 * i + 1] =
          __builtin_shufflevector(x[i], x[i + half], static_cast<int>(half + kLanes / 2 + kLanes % 2 * lanes)...);
    }
#pragma GCC unroll 16
    for (int i = 0; i < lanes; ++i) x[i] = y[i];
  }
}

struct Free {
  void operator()(float* memory) const { std::free(memory); }
};

}  // namespace

void pack_transposed(const ConstTensorView& source, std::int64_t row, std::int64_t rows, std::int64_t head,
                     std::int64_t head_dim, float* panels) {
  with_dtype(source.dtype(), [&](auto element) {
    using Element = typename decltype(element)::type;
    const std::int64_t width = round_up(rows, panel_width);
    for (std::int64_t first = 0; first < width; first += lanes) {
      float* panel = panels + first / panel_width * panel_width * head_dim + first % panel_width;
      const std::int64_t inside = std::clamp<std::int64_t>(rows - first, 0, lanes);
      for (std::int64_t dim = 0; dim < head_dim; dim += lanes) {
        Floats block[lanes] = {};
        for (std::int64_t i = 0; i < inside; ++i)
          block[i] = simd::load_first(row_of<Element>(source, row + first + i) + head * head_dim + dim, head_dim - dim);
        transpose(block, std::make_index_sequence<lanes>{});
        const std::int64_t dims = std::min<std::int64_t>(lanes, head_dim - dim);
        for (std::int64_t i = 0; i < dims; ++i) simd::store(panel + (dim + i) * panel_width, block[i]);
      }
    }
  });
}

float* scratch(std::int64_t floats) {
  thread_local std::unique_ptr<float, Free> memory;
  thread_local std::int64_t capacity = 0;
  if (floats > capacity) {
    memory.reset();
    capacity = 0;
    const std::int64_t bytes = round_up(floats * std::int64_t{sizeof(float)}, 64);
    memory.reset(static_cast<float*>(std::aligned_alloc(64, static_cast<std::size_t>(bytes))));
    if (!memory) throw_run_failure("attention: no memory for {} bytes of scratch", bytes);
    capacity = floats;
  }
  return memory.get();
}

}  // namespace skrull::attention
