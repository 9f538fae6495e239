#pragma once
// Errors as exceptions that carry the exit code of the program. Libraries throw; only main() turns them into an exit.

#include <spdlog/fmt/fmt.h>

#include <stdexcept>
#include <string>
#include <utility>

namespace skrull {

enum class ExitCode : int { done = 0, run_failed = 1, invalid_input = 2, stopped_by_signal = 75 };

/// Base of every error of this project. The message says what is wrong, where, what was expected and what to do.
class Error : public std::runtime_error {
 public:
  Error(ExitCode code, const std::string& message) : std::runtime_error(message), code_(code) {}
  ExitCode exit_code() const noexcept { return code_; }

 private:
  ExitCode code_;
};

/// The user's config, data, model folder or arguments are wrong (exit code 2).
class InvalidInput : public Error {
 public:
  explicit InvalidInput(const std::string& message) : Error(ExitCode::invalid_input, message) {}
};

/// The run itself failed: disk, memory, communication, non-finite loss, a broken invariant (exit code 1).
class RunFailure : public Error {
 public:
  explicit RunFailure(const std::string& message) : Error(ExitCode::run_failed, message) {}
};

/// A device or the host has no more memory.
class OutOfMemory : public RunFailure {
 public:
  using RunFailure::RunFailure;
};

/// The run was asked to stop and has saved what there was to save (exit code 75).
class Stopped : public Error {
 public:
  explicit Stopped(const std::string& message) : Error(ExitCode::stopped_by_signal, message) {}
};

template <class... Args>
[[noreturn]] void throw_invalid_input(fmt::format_string<Args...> message, Args&&... args) {
  throw InvalidInput(fmt::format(message, std::forward<Args>(args)...));
}

template <class... Args>
[[noreturn]] void throw_run_failure(fmt::format_string<Args...> message, Args&&... args) {
  throw RunFailure(fmt::format(message, std::forward<Args>(args)...));
}

/// For invariants of our own code at a boundary: throws RunFailure when `condition` is false. Print the values.
template <class... Args>
void require(bool condition, fmt::format_string<Args...> message, Args&&... args) {
  if (!condition) throw_run_failure(message, std::forward<Args>(args)...);
}

}  // namespace skrull
