#pragma once
// What is said to people: standard error (rank 0 only) and run.log. Standard output is for results.

#include <spdlog/fmt/fmt.h>

#include <filesystem>
#include <string>
#include <utility>

namespace skrull::log {

/// Only rank 0 speaks; errors of the other ranks appear with their rank in front.
void set_rank(int rank);

/// Also append every line, with time, to `file` (rank 0), beginning with what was said before. Throws RunFailure when
/// it can't be opened.
void add_file(const std::filesystem::path& file);

/// False in --json and test runs: keep standard error quiet below warnings.
void set_verbose(bool verbose);

void info_line(const std::string& line);
void warning_line(const std::string& line);
void error_line(const std::string& line);

template <class... Args>
void info(fmt::format_string<Args...> message, Args&&... args) {
  info_line(fmt::format(message, std::forward<Args>(args)...));
}
template <class... Args>
void warning(fmt::format_string<Args...> message, Args&&... args) {
  warning_line(fmt::format(message, std::forward<Args>(args)...));
}
template <class... Args>
void error(fmt::format_string<Args...> message, Args&&... args) {
  error_line(fmt::format(message, std::forward<Args>(args)...));
}

/// A line that replaces itself on a terminal and is dropped elsewhere; the next log line starts below it.
void progress(const std::string& line);

/// Standard error is a terminal.
bool on_terminal();

}  // namespace skrull::log
