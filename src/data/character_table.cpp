#include "character_table.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>

#include "unicode_ranges.h"

namespace skrull {
namespace {

constexpr char32_t code_point_count = 0x110000;
constexpr std::size_t longest_decomposition = 32;

}  // namespace

const CharacterTable& CharacterTable::instance() {
  static const CharacterTable table;
  return table;
}

CharacterTable::CharacterTable() : cells_(code_point_count) {
  mark_classes();
  mark_nfc();
}

void CharacterTable::mark_classes() {
  const auto mark = [&](std::span<const CodePointRange> ranges, CharacterClass character_class) {
    for (const CodePointRange range : ranges) {
      std::fill(cells_.begin() + range.first, cells_.begin() + range.last + 1,
                static_cast<std::uint8_t>(character_class));
    }
  };
  mark(letter_ranges(), CharacterClass::letter);
  mark(number_ranges(), CharacterClass::number);
  mark(white_space_ranges(), CharacterClass::white_space);
  cells_['\n'] = static_cast<std::uint8_t>(CharacterClass::newline);
  cells_['\r'] = static_cast<std::uint8_t>(CharacterClass::newline);
}

void CharacterTable::mark_nfc() {
  constexpr auto options = static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE);
  std::array<utf8proc_int32_t, longest_decomposition> parts{};
  for (char32_t c = 0x80; c < code_point_count; ++c) {
    const auto code_point = static_cast<utf8proc_int32_t>(c);
    if (utf8proc_get_property(code_point)->combining_class != 0) cells_[c] |= nfc_unsafe;
    int last_boundary = 0;
    const utf8proc_ssize_t count =
        utf8proc_decompose_char(code_point, parts.data(), parts.size(), UTF8PROC_DECOMPOSE, &last_boundary);
    if (count <= 0 || (count == 1 && parts[0] == code_point)) continue;
    // A character that stands later in a decomposition may join with the one before it.
    for (utf8proc_ssize_t k = 1; k < count; ++k) cells_[static_cast<std::size_t>(parts[k])] |= nfc_unsafe;
    const bool restored = utf8proc_normalize_utf32(parts.data(), count, options) == 1 && parts[0] == code_point;
    if (!restored) cells_[c] |= nfc_unsafe;
  }
}

}  // namespace skrull
