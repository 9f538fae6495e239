#pragma once
// Random Unicode text for the tests of the data layer.

#include <cstdint>
#include <string>
#include <vector>

#include "skrull/core/rng.h"

namespace skrull::test {

inline void append_utf8(char32_t c, std::string& text) {
  const auto put = [&](char32_t byte) { text += static_cast<char>(byte); };
  if (c < 0x80) {
    put(c);
  } else if (c < 0x800) {
    put(0xC0U | c >> 6U);
    put(0x80U | (c & 0x3FU));
  } else if (c < 0x10000) {
    put(0xE0U | c >> 12U);
    put(0x80U | (c >> 6U & 0x3FU));
    put(0x80U | (c & 0x3FU));
  } else {
    put(0xF0U | c >> 18U);
    put(0x80U | (c >> 12U & 0x3FU));
    put(0x80U | (c >> 6U & 0x3FU));
    put(0x80U | (c & 0x3FU));
  }
}

/// Up to `longest` characters, drawn from kinds that split patterns and normalization treat differently.
inline std::string random_text(Rng& random, std::size_t longest) {
  static const std::vector<char32_t> special{
      '\'',  's',    'S',    't',    'l',    'L',    'r',    'e',    'v',    'm',     'D',    0x17F,  ' ',   '\n',
      '\r',  '\t',   0x0B,   0x0C,   0x85,   0xA0,   0x180E, 0x2003, 0x2028, 0x3000,  0x200B, 0xFEFF, 0x301, 0x327,
      0x338, 0x1100, 0x1161, 0x11A8, 0xAC00, 0x0F73, 0x212B, 0x2126, 0x0958, 0x1F1E6, 0x200D, 0xFE0F, 0x661, 0xB2};
  struct Block {
    char32_t first;
    std::uint64_t size;
  };
  static const std::vector<Block> blocks{
      {0x20, 0x5F},    {0x20, 0x5F},    {0x61, 26},      {0xA0, 0x160},    {0x300, 0x70},    {0x370, 0x190},
      {0x590, 0x170},  {0x900, 0x480},  {0x1100, 0x100}, {0x1E00, 0x200},  {0x2000, 0x400},  {0x3040, 0x100},
      {0x4E00, 0x500}, {0xAC00, 0x400}, {0xF900, 0x200}, {0x1F300, 0x300}, {0x10000, 0x4000}};
  std::string text;
  const std::size_t length = random.below(longest + 1);
  char32_t c = 'a';
  for (std::size_t i = 0; i < length; ++i) {
    const std::uint64_t kind = random.below(10);
    if (kind < 4) {
      c = special[random.below(special.size())];
    } else if (kind < 8) {
      const Block block = blocks[random.below(blocks.size())];
      c = block.first + static_cast<char32_t>(random.below(block.size));
    } else if (kind == 8) {
      c = static_cast<char32_t>(random.below(0x110000));
      if (c >= 0xD800 && c <= 0xDFFF) c = 'x';
    }  // else the same character once more
    append_utf8(c, text);
  }
  return text;
}

}  // namespace skrull::test
