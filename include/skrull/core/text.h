#pragma once
// Small helpers on text that several layers need.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace skrull {

/// "12.3 GiB"; exact bytes below 1 KiB.
std::string format_bytes(std::int64_t bytes);
/// 1234567 -> "1,234,567".
std::string format_count(std::int64_t count);
/// "1h 02m", "3m 05s", "12.3s".
std::string format_duration(double seconds);

/// The candidate with the smallest edit distance to `word`, or "" when none is near (more than a third of the letters).
std::string nearest(std::string_view word, const std::vector<std::string>& candidates);

/// Offset of the first byte that is not valid UTF-8 (overlong forms and surrogates included), or npos.
std::size_t find_invalid_utf8(std::string_view text);

}  // namespace skrull
