#include "file_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>
#include <utility>

#include "skrull/core/error.h"
#include "skrull/core/log.h"

namespace skrull {
namespace {

constexpr std::chrono::milliseconds look_interval{50};

}  // namespace

FileLock::FileLock(const std::filesystem::path& file, const std::string& waiting_message,
                   const std::function<void()>& while_waiting)
    : descriptor_(::open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644)) {
  if (descriptor_ < 0) throw_run_failure("{}: can't be created: {}", file.string(), std::strerror(errno));
  // Not a blocking flock(): whoever waits in it can't be asked to stop.
  while (::flock(descriptor_, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
    if (!std::exchange(waited_, true)) log::info("{}", waiting_message);
    try {
      while_waiting();
    } catch (...) {
      ::close(descriptor_);
      throw;
    }
    std::this_thread::sleep_for(look_interval);
  }
}

FileLock::~FileLock() {
  ::close(descriptor_);
}

}  // namespace skrull
