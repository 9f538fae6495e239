#include "cpu/host_memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <limits>
#include <optional>
#include <string>

namespace skrull {

namespace {

namespace fs = std::filesystem;

constexpr std::int64_t page_bytes = 4096;
constexpr std::int64_t huge_page_bytes = 2 << 20;
constexpr std::int64_t no_limit = std::numeric_limits<std::int64_t>::max();

std::int64_t rounded_up(std::int64_t bytes, std::int64_t unit) {
  return (bytes + unit - 1) / unit * unit;
}

/// The number in a one-number file; nullopt when there is no file or no number ("max").
std::optional<std::int64_t> number_in(const fs::path& file) {
  std::ifstream in(file);
  std::int64_t value = 0;
  if (in >> value) return value;
  return std::nullopt;
}

/// The value of `key` in a file of "key value" lines; 0 when it is not there.
std::int64_t value_in(const fs::path& file, const std::string& key) {
  std::ifstream in(file);
  std::string name;
  std::int64_t value = 0;
  while (in >> name >> value) {
    if (name == key) return value;
    in.ignore(std::numeric_limits<std::streamsize>::max(), '\n');
  }
  return 0;
}

/// Names of the files that one version of the control groups uses.
struct GroupFiles {
  fs::path root;
  const char* limit;
  const char* usage;
  const char* reclaimable_prefix;  ///< in memory.stat: before "inactive_file" and "active_file"
};

/// What a control group and those above it leave; file pages it can drop count as free.
std::int64_t left_in_group(const GroupFiles& files, const fs::path& group) {
  std::int64_t left = no_limit;
  for (fs::path folder = files.root / group.relative_path();; folder = folder.parent_path()) {
    const auto limit = number_in(folder / files.limit);
    const auto usage = number_in(folder / files.usage);
    if (limit && usage) {
      const std::string prefix = files.reclaimable_prefix;
      const fs::path statistics = folder / "memory.stat";
      const std::int64_t reclaimable =
          value_in(statistics, prefix + "inactive_file") + value_in(statistics, prefix + "active_file");
      left = std::min(left, std::max<std::int64_t>(0, *limit - *usage + reclaimable));
    }
    if (folder == files.root || folder == folder.root_path()) return left;
  }
}

std::int64_t left_in_control_groups() {
  const GroupFiles version1{"/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_"};
  const GroupFiles version2{"/sys/fs/cgroup", "memory.max", "memory.current", ""};
  std::int64_t left = no_limit;
  std::ifstream groups("/proc/self/cgroup");  // lines "id:controllers:path"
  for (std::string line; std::getline(groups, line);) {
    const std::size_t first = line.find(':');
    const std::size_t second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const fs::path group = line.substr(second + 1);
    if (controllers.empty()) left = std::min(left, left_in_group(version2, group));
    if (controllers == "memory") left = std::min(left, left_in_group(version1, group));
  }
  return left;
}

}  // namespace

std::int64_t available_host_memory() {
  const std::int64_t machine = value_in("/proc/meminfo", "MemAvailable:") * 1024;
  return std::min(machine, left_in_control_groups());
}

void* allocate_pages(std::int64_t bytes) {
  if (bytes > available_host_memory()) return nullptr;  // asking the kernel would succeed, and using it would kill us
  const std::int64_t size = rounded_up(bytes, page_bytes);
  const std::int64_t huge_bytes = size / huge_page_bytes * huge_page_bytes;  // the rest is left to small pages
  const std::int64_t reserve = huge_bytes > 0 ? size + huge_page_bytes : size;
  void* mapped =
      ::mmap(nullptr, static_cast<std::size_t>(reserve), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) return nullptr;
  char* data = static_cast<char*>(mapped);
  if (huge_bytes > 0) {
    const auto misaligned = static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(mapped) % huge_page_bytes);
    const std::int64_t before = misaligned == 0 ? 0 : huge_page_bytes - misaligned;
    if (before > 0) ::munmap(data, static_cast<std::size_t>(before));
    data += before;
    const std::int64_t after = reserve - before - size;
    if (after > 0) ::munmap(data + size, static_cast<std::size_t>(after));
    ::madvise(data, static_cast<std::size_t>(huge_bytes), MADV_HUGEPAGE);
  }
  const std::int64_t pages = size / page_bytes;
#pragma omp parallel for schedule(static) if (pages > 512)
  for (std::int64_t page = 0; page < pages; ++page) static_cast<volatile char*>(data)[page * page_bytes] = 0;
  return data;
}

void free_pages(void* data, std::int64_t bytes) noexcept {
  if (data == nullptr) return;
  ::munmap(data, static_cast<std::size_t>(rounded_up(bytes, page_bytes)));
}

}  // namespace skrull
