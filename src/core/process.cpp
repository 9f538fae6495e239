#include "skrull/core/process.h"

#include <sys/resource.h>
#include <unistd.h>

#include <array>

namespace skrull {

std::string host_name() {
  std::array<char, 256> name{};
  ::gethostname(name.data(), name.size() - 1);
  return name.data();
}

std::int64_t peak_process_memory() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  return static_cast<std::int64_t>(usage.ru_maxrss) * 1024;
}

}  // namespace skrull
