#include "nfc.h"

#include <utf8proc.h>

#include <cstdint>
#include <vector>

#include "character_table.h"
#include "skrull/core/error.h"

namespace skrull {
namespace {

/// Every code point below U+0300 is an NFC boundary; its UTF-8 has no byte from this one upwards.
constexpr unsigned char first_unsafe_lead = 0xCC;

bool is_continuation(char byte) {
  return (static_cast<unsigned char>(byte) & 0xC0U) == 0x80;
}

/// Offset of the next character at or after `offset` that is no NFC boundary, or the text's size.
std::size_t find_unsafe(const CharacterTable& table, std::string_view text, std::size_t offset) {
  while (offset < text.size()) {
    if (static_cast<unsigned char>(text[offset]) < first_unsafe_lead) {
      ++offset;
      continue;
    }
    const DecodedCharacter character = decode_character(text, offset);
    if (!table.is_nfc_boundary(character.code_point)) break;
    offset += character.length;
  }
  return offset;
}

void append_nfc(std::string_view text, std::vector<utf8proc_int32_t>& scratch, std::string& output) {
  constexpr auto options = static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE);
  const auto* bytes = reinterpret_cast<const utf8proc_uint8_t*>(text.data());
  const auto size = static_cast<utf8proc_ssize_t>(text.size());
  utf8proc_ssize_t count = 0;
  while (true) {
    const auto room = static_cast<utf8proc_ssize_t>(scratch.size());
    count = utf8proc_decompose(bytes, size, scratch.data(), room, options);
    // Re-encoding in place needs one element more than the characters, for a final 0.
    if (count < room) break;
    scratch.resize(static_cast<std::size_t>(count) + 1);
  }
  require(count >= 0, "NFC of {} bytes failed: {}", size, utf8proc_errmsg(count));
  const utf8proc_ssize_t length = utf8proc_reencode(scratch.data(), count, options);
  require(length >= 0, "NFC of {} bytes failed: {}", size, utf8proc_errmsg(length));
  output.append(reinterpret_cast<const char*>(scratch.data()), static_cast<std::size_t>(length));
}

}  // namespace

std::string_view normalize_nfc(std::string_view text, std::string& buffer) {
  const CharacterTable& table = CharacterTable::instance();
  std::size_t unsafe = find_unsafe(table, text, 0);
  if (unsafe == text.size()) return text;
  buffer.clear();
  buffer.reserve(text.size());
  std::vector<utf8proc_int32_t> scratch(64);
  std::size_t copied = 0;
  while (unsafe < text.size()) {
    // From the boundary before the unsafe characters to the boundary after them NFC works on its own.
    std::size_t begin = unsafe;
    if (begin > copied) --begin;
    while (begin > copied && is_continuation(text[begin])) --begin;
    std::size_t end = unsafe;
    while (end < text.size()) {
      const DecodedCharacter character = decode_character(text, end);
      if (table.is_nfc_boundary(character.code_point)) break;
      end += character.length;
    }
    buffer.append(text.substr(copied, begin - copied));
    append_nfc(text.substr(begin, end - begin), scratch, buffer);
    copied = end;
    unsafe = find_unsafe(table, text, end);
  }
  buffer.append(text.substr(copied));
  return buffer;
}

}  // namespace skrull
