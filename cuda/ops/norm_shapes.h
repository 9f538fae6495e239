#pragma once
// How rows are divided over threads: a row that fits is held in registers, so that memory is read once.

#include <cstdint>

namespace skrull {

/// Pieces of 16 bytes that a thread holds of a row.
inline constexpr int norm_pieces = 4;
/// Threads of a row that is held in no registers: too wide, or not aligned.
inline constexpr int norm_general_threads = 256;

template <int count>
struct NormThreads {
  static constexpr int value = count;
};

/// Calls fn(NormThreads<n>{}) with the fewest threads that hold a row of so many pieces. False, and no call, when the
/// row is too wide.
template <class F>
bool with_norm_threads(std::int64_t pieces_of_row, F&& fn) {
  const auto fit = [&](auto count) {
    if (pieces_of_row > count.value * norm_pieces) return false;
    fn(count);
    return true;
  };
  return fit(NormThreads<32>{}) || fit(NormThreads<128>{}) || fit(NormThreads<256>{}) || fit(NormThreads<512>{});
}

}  // namespace skrull
