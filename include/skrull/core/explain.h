#pragma once
// From any exception to what the program says and returns.

#include <exception>
#include <new>
#include <string>

#include "skrull/core/error.h"

namespace skrull {

/// What to tell people about it.
inline std::string explain(const std::exception& error) {
  if (dynamic_cast<const Error*>(&error) != nullptr) return error.what();
  if (dynamic_cast<const std::bad_alloc*>(&error) != nullptr) {
    return "out of memory; use a smaller bucket_tokens, cutoff_len or model";
  }
  return fmt::format("unexpected: {}", error.what());
}

/// The program's exit code after it.
inline ExitCode exit_code_of(const std::exception& error) {
  const auto* own = dynamic_cast<const Error*>(&error);
  return own != nullptr ? own->exit_code() : ExitCode::run_failed;
}

}  // namespace skrull
