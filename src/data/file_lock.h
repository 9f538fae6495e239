#pragma once

#include <filesystem>
#include <functional>
#include <string>

namespace skrull {

/// Holds an exclusive lock between processes through a lock file, for the scope. Waits while another process has it,
/// after saying `waiting_message`, and calls `while_waiting` several times a second; what that throws ends the wait.
/// The lock file stays, empty. A file system without locks lets everybody in.
class FileLock {
 public:
  /// Throws RunFailure when the lock file can't be made.
  FileLock(const std::filesystem::path& file, const std::string& waiting_message,
           const std::function<void()>& while_waiting);
  ~FileLock();
  FileLock(const FileLock&) = delete;
  FileLock& operator=(const FileLock&) = delete;

  /// Another process had it first.
  bool waited() const { return waited_; }

 private:
  int descriptor_ = -1;
  bool waited_ = false;
};

}  // namespace skrull
