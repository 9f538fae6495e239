#pragma once
// What an error says.

#include <string>
#include <vector>

#include "support/catch.h"

namespace skrull::test {

/// The message of the Error that `call` throws; the test fails when it throws none.
template <class Error, class Call>
std::string message_of(Call call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  FAIL("no error was thrown");
  return {};
}

/// True when `text` contains every one of `parts`; prints what is missing.
inline bool contains_all(const std::string& text, const std::vector<std::string>& parts) {
  for (const std::string& part : parts) {
    if (text.find(part) != std::string::npos) continue;
    WARN("\"" << text << "\" lacks \"" << part << "\"");
    return false;
  }
  return true;
}

}  // namespace skrull::test
