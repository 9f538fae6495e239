#pragma once
// A fast 64-bit hash of short byte strings for tables in memory; not stable over versions, not for files.

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace skrull {

inline std::uint64_t multiply_fold(std::uint64_t a, std::uint64_t b) {
  __extension__ using Wide = unsigned __int128;
  const Wide product = static_cast<Wide>(a) * b;
  return static_cast<std::uint64_t>(product) ^ static_cast<std::uint64_t>(product >> 64U);
}

inline std::uint64_t hash_bytes(const char* bytes, std::size_t size) {
  // Odd constants from the digits of pi; any with mixed bits serve.
  constexpr std::uint64_t first_key = 0x243F6A8885A308D3ULL;
  constexpr std::uint64_t second_key = 0x13198A2E03707345ULL;
  const auto load = [](const char* from, std::size_t count) {
    std::uint64_t value = 0;
    std::memcpy(&value, from, count);
    return value;
  };
  std::uint64_t state = first_key + size;
  std::uint64_t head = 0;
  std::uint64_t tail = 0;
  if (size >= 8) {
    const char* const last = bytes + size - 8;
    while (bytes + 8 < last) {
      state = multiply_fold(state ^ load(bytes, 8), second_key);
      bytes += 8;
    }
    head = load(bytes, 8);
    tail = load(last, 8);
  } else if (size >= 4) {
    head = load(bytes, 4);
    tail = load(bytes + size - 4, 4);
  } else if (size > 0) {
    head = static_cast<unsigned char>(bytes[0]);
    tail = static_cast<std::uint64_t>(static_cast<unsigned char>(bytes[size / 2])) << 8U |
           static_cast<unsigned char>(bytes[size - 1]);
  }
  return multiply_fold(state ^ head, second_key ^ (tail * first_key + size));
}

}  // namespace skrull
