#pragma once
// What the error tests of the data layer share.

#include <string>
#include <string_view>

#include "skrull/core/error.h"

namespace skrull::test {

/// The message of the InvalidInput that `work` throws; "(nothing thrown)" otherwise.
template <class Work>
std::string invalid_input_of(Work&& work) {
  try {
    work();
  } catch (const InvalidInput& error) {
    return error.what();
  }
  return "(nothing thrown)";
}

inline bool contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

}  // namespace skrull::test
