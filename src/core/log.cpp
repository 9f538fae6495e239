#include "skrull/core/log.h"

#include <spdlog/sinks/basic_file_sink.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "skrull/core/error.h"

namespace skrull::log {
namespace {

constexpr std::size_t most_lines_before_file = 10000;

struct Logger {
  std::mutex mutex;
  spdlog::logger console{"skrull", std::make_shared<spdlog::sinks::stderr_sink_mt>()};
  std::unique_ptr<spdlog::logger> file;
  std::vector<std::pair<spdlog::level::level_enum, std::string>> before_file;  ///< lines that the file will begin with
  int rank = 0;
  bool verbose = true;
  bool progress_shown = false;

  Logger() { console.set_pattern("%v"); }

  void write(spdlog::level::level_enum level, const std::string& line) {
    const std::lock_guard lock(mutex);
    if (rank != 0 && level < spdlog::level::err) return;  // what they would say rank 0 says too
    if (verbose || level >= spdlog::level::warn) {
      if (std::exchange(progress_shown, false)) ::fputs("\r\x1B[K", stderr);
      const char* label = level == spdlog::level::err ? "error: " : level == spdlog::level::warn ? "warning: " : "";
      const std::string who = rank == 0 ? "" : fmt::format("[rank {}] ", rank);
      console.log(level, "{}{}{}", who, label, line);
      console.flush();
    }
    if (file) {
      file->log(level, "{}", line);
    } else if (before_file.size() < most_lines_before_file) {
      before_file.emplace_back(level, line);
    }
  }
};

Logger& logger() {
  static Logger instance;
  return instance;
}

}  // namespace

void set_rank(int rank) {
  logger().rank = rank;
}
void set_verbose(bool verbose) {
  logger().verbose = verbose;
}

void add_file(const std::filesystem::path& file) {
  Logger& self = logger();
  const std::lock_guard lock(self.mutex);
  if (self.rank != 0) return;
  try {
    auto sink = std::make_shared<spdlog::sinks::basic_file_sink_mt>(file.string());
    self.file = std::make_unique<spdlog::logger>("file", std::move(sink));
    self.file->set_pattern("%Y-%m-%d %H:%M:%S.%e %l %v");
    self.file->flush_on(spdlog::level::info);
    self.file->set_error_handler([](const std::string&) {});  // a full disk must not end a run through its log
    for (const auto& [level, line] : std::exchange(self.before_file, {})) self.file->log(level, "{}", line);
  } catch (const spdlog::spdlog_ex& error) {
    throw_run_failure("{}: can't be opened for writing: {}", file.string(), error.what());
  }
}

void info_line(const std::string& line) {
  logger().write(spdlog::level::info, line);
}
void warning_line(const std::string& line) {
  logger().write(spdlog::level::warn, line);
}
void error_line(const std::string& line) {
  logger().write(spdlog::level::err, line);
}

void progress(const std::string& line) {
  Logger& self = logger();
  const std::lock_guard lock(self.mutex);
  if (self.rank != 0 || !self.verbose || !on_terminal()) return;
  ::fputs(("\r\x1B[K" + line).c_str(), stderr);
  self.progress_shown = true;
}

bool on_terminal() {
  static const bool terminal = ::isatty(STDERR_FILENO) == 1;
  return terminal;
}

}  // namespace skrull::log
