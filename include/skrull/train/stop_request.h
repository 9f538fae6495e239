#pragma once
// Being asked to stop: SIGTERM or SIGUSR1 to any rank, or a file STOP in output_dir.

#include <chrono>
#include <filesystem>
#include <string>

#include "skrull/comm/communicator.h"

namespace skrull {

inline constexpr const char* stop_file_name = "STOP";

/// From now on the first SIGTERM or SIGUSR1 only sets a flag, and the next one ends the process at once with exit code
/// 128 + signal. A second one within a quarter of a second counts as the same: launchers and process groups deliver
/// twice.
void install_stop_handlers();

/// What all ranks know of it. Once wanted, always wanted.
class StopRequest {
 public:
  /// `control` must outlive this.
  StopRequest(ControlChannel& control, const std::filesystem::path& output_dir);

  /// This rank was signalled, or (on rank 0, which looks ten times a second) the file is there. Not collective.
  bool wanted_here();
  /// Whether any rank is asked to stop. Collective; the same on every rank.
  bool agreed();
  /// The same for work that ends by exceptions: throws Stopped on all ranks when any is asked. May be called within
  /// ControlChannel::run_together().
  void throw_if_asked();
  /// Who was asked, and how, for people. Collective.
  std::string reason();
  /// Removes the file, so that the next start runs. On rank 0.
  void remove_file() const;

 private:
  std::string wish() const;

  ControlChannel& control_;
  std::filesystem::path file_;
  std::chrono::steady_clock::time_point last_look_;
  bool file_seen_ = false;
  bool agreed_ = false;
};

}  // namespace skrull
