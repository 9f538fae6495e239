#pragma once
// The code points of the general categories L and N and of the property White_Space, fixed here so that token ids don't
// depend on the Unicode version of an installed library.

#include <span>

namespace skrull {

/// Code points first..last, both included.
struct CodePointRange {
  char32_t first;
  char32_t last;
};

std::span<const CodePointRange> letter_ranges();
std::span<const CodePointRange> number_ranges();
std::span<const CodePointRange> white_space_ranges();

}  // namespace skrull
