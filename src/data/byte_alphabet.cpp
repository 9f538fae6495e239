#include "byte_alphabet.h"

#include <array>
#include <cstdint>

namespace skrull {
namespace {

/// Printable Latin-1 characters stand for their own byte; the other bytes, in ascending order, take U+0100 and up.
struct Alphabet {
  std::array<std::uint16_t, 256> character{};
  std::array<std::int16_t, 324> byte{};

  constexpr Alphabet() {
    byte.fill(-1);
    std::uint16_t next = 256;
    for (std::uint16_t b = 0; b < 256; ++b) {
      const bool printable = (b >= 33 && b <= 126) || (b >= 161 && b != 173);
      character[b] = printable ? b : next++;
      byte[character[b]] = static_cast<std::int16_t>(b);
    }
  }
};

constexpr Alphabet alphabet;

}  // namespace

bool append_alphabet_bytes(std::string_view token, std::string& bytes) {
  const std::size_t before = bytes.size();
  for (std::size_t i = 0; i < token.size();) {
    const auto lead = static_cast<unsigned char>(token[i]);
    std::size_t character = lead;
    std::size_t length = 1;
    if (lead >= 0xC2 && lead <= 0xC5 && i + 1 < token.size()) {
      character = (lead & 0x1FU) << 6U | (static_cast<unsigned char>(token[i + 1]) & 0x3FU);
      length = 2;
    }
    if ((length == 1 && lead >= 0x80) || character >= alphabet.byte.size() || alphabet.byte[character] < 0) {
      bytes.resize(before);
      return false;
    }
    bytes += static_cast<char>(alphabet.byte[character]);
    i += length;
  }
  return true;
}

std::string to_byte_alphabet(std::string_view bytes) {
  std::string token;
  for (const char byte : bytes) {
    const std::uint16_t character = alphabet.character[static_cast<unsigned char>(byte)];
    if (character < 0x80) {
      token += static_cast<char>(character);
    } else {
      token += static_cast<char>(0xC0U | character >> 6U);
      token += static_cast<char>(0x80U | (character & 0x3FU));
    }
  }
  return token;
}

}  // namespace skrull
