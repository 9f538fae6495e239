#pragma once
// Unicode normalization form C of UTF-8 text.

#include <string>
#include <string_view>

namespace skrull {

/// NFC of valid UTF-8. Text that a quick check finds to be NFC already is returned as it is; otherwise `buffer` is
/// overwritten with the result and a view of it returned.
std::string_view normalize_nfc(std::string_view text, std::string& buffer);

}  // namespace skrull
