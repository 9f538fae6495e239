#pragma once
// The byte-level alphabet of GPT-2: each byte written as one printable character, as vocabularies in JSON need it.

#include <string>
#include <string_view>

namespace skrull {

/// Appends the bytes that `token` (UTF-8) writes in the alphabet. False, with `bytes` unchanged, when a character isn't
/// of the alphabet.
bool append_alphabet_bytes(std::string_view token, std::string& bytes);

/// `bytes` in the alphabet.
std::string to_byte_alphabet(std::string_view bytes);

}  // namespace skrull
