#pragma once
// What the CPU's kernels share: the division of work over threads.

#include <omp.h>

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "cpu/vector_math.h"
#include "skrull/device/operands.h"

namespace skrull {

/// Calls fn(begin, end) on ranges that cover [0, count), one per thread; in the caller alone when there is little to
/// do. An item costs about `item_elements` elements of memory traffic. Which range an item falls into depends on the
/// number of threads, so fn must not carry a sum from one item to the next. fn must not throw.
template <class F>
void parallel_ranges(std::int64_t count, std::int64_t item_elements, const F& fn) {
  constexpr std::int64_t elements_worth_a_thread = 8192;
  // All threads or none: OpenMP ends threads when a team shrinks.
  const int threads = omp_get_max_threads();
  if (threads == 1 || count <= 1 || count * item_elements < 2 * elements_worth_a_thread) {
    if (count > 0) fn(std::int64_t{0}, count);
    return;
  }
#pragma omp parallel
  {
    const std::int64_t thread = omp_get_thread_num();
    const std::int64_t team = omp_get_num_threads();
    const std::int64_t share = count / team;
    const std::int64_t extra = count % team;
    const std::int64_t begin = thread * share + std::min(thread, extra);
    const std::int64_t end = begin + share + (thread < extra ? 1 : 0);
    if (begin < end) fn(begin, end);
  }
}

/// Calls fn(i, size) for the vectors [i, i + size) of [0, count): size is the constant simd::lanes for all but the
/// last.
template <class F>
void for_each_vector(std::int64_t count, const F& fn) {
  std::int64_t i = 0;
  for (; i + simd::lanes <= count; i += simd::lanes) fn(i, std::integral_constant<std::int64_t, simd::lanes>{});
  if (i < count) fn(i, count - i);
}

/// Calls fn(row, begin, end) so that every element of a rows x cols matrix is covered once. When all operands are
/// contiguous, pass contiguous = true: the matrix is then one long row (row = 0).
template <class F>
void parallel_elements(std::int64_t rows, std::int64_t cols, bool contiguous, const F& fn) {
  if (contiguous) {
    constexpr std::int64_t line = 64;  // elements: whole cache lines per thread
    const std::int64_t elements = rows * cols;
    parallel_ranges((elements + line - 1) / line, line, [&](std::int64_t begin, std::int64_t end) {
      fn(std::int64_t{0}, begin * line, std::min(end * line, elements));
    });
  } else {
    parallel_ranges(rows, cols, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t row = begin; row < end; ++row) fn(row, std::int64_t{0}, cols);
    });
  }
}

}  // namespace skrull
