#pragma once
// One byte of facts per code point: what the split pattern and the NFC quick check ask about a character.

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace skrull {

enum class CharacterClass : std::uint8_t { other, letter, number, newline, white_space };

class CharacterTable {
 public:
  /// Built at the first call; safe to call from any thread.
  static const CharacterTable& instance();

  CharacterClass character_class(char32_t code_point) const {
    return static_cast<CharacterClass>(cells_[code_point] & class_mask);
  }
  /// True when NFC never changes or joins anything across the border before this character (combining class 0 and quick
  /// check "yes": Unicode Standard Annex 15, sections 9 and 13).
  bool is_nfc_boundary(char32_t code_point) const { return (cells_[code_point] & nfc_unsafe) == 0; }

 private:
  static constexpr std::uint8_t class_mask = 7;
  static constexpr std::uint8_t nfc_unsafe = 8;

  CharacterTable();
  void mark_classes();
  void mark_nfc();

  std::vector<std::uint8_t> cells_;
};

struct DecodedCharacter {
  char32_t code_point;
  std::size_t length;  ///< bytes
};

/// The character at `offset` of valid UTF-8.
inline DecodedCharacter decode_character(std::string_view text, std::size_t offset) {
  const auto byte = [&](std::size_t k) { return static_cast<unsigned char>(text[offset + k]); };
  const char32_t lead = byte(0);
  if (lead < 0x80) return {lead, 1};
  if (lead < 0xE0) return {(lead & 0x1FU) << 6U | (byte(1) & 0x3FU), 2};
  if (lead < 0xF0) return {(lead & 0x0FU) << 12U | (byte(1) & 0x3FU) << 6U | (byte(2) & 0x3FU), 3};
  return {(lead & 0x07U) << 18U | (byte(1) & 0x3FU) << 12U | (byte(2) & 0x3FU) << 6U | (byte(3) & 0x3FU), 4};
}

}  // namespace skrull
