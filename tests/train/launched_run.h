#pragma once
// The program under mpirun in the background, for tests that do something to a rank of it.

#include <signal.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "skrull/core/error.h"
#include "skrull/core/file.h"
#include "support/support.h"

namespace skrull::test {

/// Until `reached` says true; throws when that takes minutes.
inline void wait_until(const std::function<bool()>& reached) {
  for (int waited = 0; waited < 2400; ++waited) {
    if (reached()) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  throw_run_failure("what the test waits for does not happen");
}

using Command = std::vector<std::string>;  ///< a program and its arguments

/// Starts one command for each rank under mpirun. A run that hangs is ended with exit code 124.
inline Command launch_of(const std::vector<Command>& ranks) {
  ::setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 1);
  ::setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 1);
  Command all = {"timeout", "--kill-after=5", "150", "mpirun", "--oversubscribe"};
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    if (rank > 0) all.emplace_back(":");
    all.insert(all.end(), {"-np", "1"});
    all.insert(all.end(), ranks[rank].begin(), ranks[rank].end());
  }
  return all;
}

class LaunchedRun {
 public:
  /// Ranks leave their process ids in `folder`.
  LaunchedRun(std::filesystem::path folder, std::vector<Command> ranks) : folder_(std::move(folder)) {
    const std::string leave_pid = "echo $$ > '" + folder_.string() + "/pid-'$OMPI_COMM_WORLD_RANK; exec \"$@\"";
    for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
      std::filesystem::remove(pid_file(static_cast<int>(rank)));
      const Command first = {"bash", "-c", leave_pid, "bash"};
      ranks[rank].insert(ranks[rank].begin(), first.begin(), first.end());
    }
    job_ = std::thread([this, command = launch_of(ranks)] { result_ = run_command(command); });
  }
  /// The trainer, with the same arguments on all ranks.
  LaunchedRun(std::filesystem::path folder, int ranks, Command arguments)
      : LaunchedRun(std::move(folder), [&] {
          arguments.insert(arguments.begin(), std::string(SKRULL_BINARY_DIR) + "/skrull");
          return std::vector<Command>(static_cast<std::size_t>(ranks), arguments);
        }()) {}
  ~LaunchedRun() {
    if (job_.joinable()) job_.join();
  }
  LaunchedRun(const LaunchedRun&) = delete;
  LaunchedRun& operator=(const LaunchedRun&) = delete;

  /// Once the rank is there.
  void send(int rank, int signal) const { ::kill(process_of(rank), signal); }
  /// Until the rank is so far that `signal` does not just end it.
  void wait_until_caught(int rank, int signal) const {
    const std::string status = "/proc/" + std::to_string(process_of(rank)) + "/status";
    wait_until([&] {
      std::ifstream lines(status);
      for (std::string line; std::getline(lines, line);) {
        constexpr std::string_view caught = "SigCgt:";
        if (!line.starts_with(caught)) continue;
        return (std::stoull(line.substr(caught.size()), nullptr, 16) >> (signal - 1) & 1) != 0;
      }
      return true;  // it has ended
    });
  }
  const CommandResult& wait() {
    if (job_.joinable()) job_.join();
    return result_;
  }

 private:
  pid_t process_of(int rank) const {
    wait_until([&] {
      std::error_code absent;
      return std::filesystem::file_size(pid_file(rank), absent) > 1 && !absent;
    });
    return std::atoi(read_file(pid_file(rank)).c_str());
  }
  std::filesystem::path pid_file(int rank) const { return folder_ / ("pid-" + std::to_string(rank)); }

  std::filesystem::path folder_;
  CommandResult result_;
  std::thread job_;
};

/// Some rows of metrics.jsonl are there.
inline bool is_training(const std::filesystem::path& output_dir) {
  std::error_code absent;
  const auto bytes = std::filesystem::file_size(output_dir / "metrics.jsonl", absent);
  return !absent && bytes > 1000;
}

}  // namespace skrull::test
