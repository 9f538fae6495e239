#include "file_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "skrull/core/error.h"
#include "skrull/core/log.h"

namespace skrull {

FileLock::FileLock(const std::filesystem::path& file, const std::string& waiting_message)
    : descriptor_(::open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644)) {
  if (descriptor_ < 0) throw_run_failure("{}: can't be created: {}", file.string(), std::strerror(errno));
  if (::flock(descriptor_, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK) return;
  waited_ = true;
  log::info("{}", waiting_message);
  while (::flock(descriptor_, LOCK_EX) != 0 && errno == EINTR) {
  }
}

FileLock::~FileLock() {
  ::close(descriptor_);
}

}  // namespace skrull
