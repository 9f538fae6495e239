#include "simt/stand_in/device_memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <new>
#include <stdexcept>

#include "simt/sanitizers.h"
#include "simt/stand_in/machine.h"

namespace skrull::simt {
namespace {

constexpr std::size_t alignment = 512;
// Opening and closing goes page by page: with large ones it takes microseconds, with small ones a step's time.
constexpr std::size_t page = 2 << 20;
// Under the address sanitizer, what lies behind an allocation must not be touched.
constexpr std::size_t red_zone = address_sanitizer ? alignment : 0;

std::size_t round_up(std::size_t bytes, std::size_t unit) {
  return (bytes + unit - 1) / unit * unit;
}

void forbid([[maybe_unused]] void* memory, [[maybe_unused]] std::size_t bytes) {
#ifdef SKRULL_SIMT_ASAN
  __asan_poison_memory_region(memory, bytes);
#endif
}
void allow([[maybe_unused]] void* memory, [[maybe_unused]] std::size_t bytes) {
#ifdef SKRULL_SIMT_ASAN
  __asan_unpoison_memory_region(memory, bytes);
#endif
}

/// Says what happened, then lets it happen.
void report_segmentation_fault(int signal, siginfo_t* information, void* /*context*/) {
  if (DeviceMemory::instance().is_device(information->si_addr)) {
    static constexpr char message[] =
        "host code touched device memory while the device was at rest: a copy is missing, or a host task was given a "
        "pointer to device memory\n";
    [[maybe_unused]] const auto written = write(STDERR_FILENO, message, sizeof(message) - 1);
  }
  std::signal(signal, SIG_DFL);  // the instruction is tried again
}

void watch_segmentation_faults() {
  if constexpr (address_sanitizer || thread_sanitizer) return;  // they report by themselves
  struct sigaction action = {};
  action.sa_sigaction = report_segmentation_fault;
  action.sa_flags = SA_SIGINFO;
  sigaction(SIGSEGV, &action, nullptr);
}

}  // namespace

DeviceMemory& DeviceMemory::instance() {
  static DeviceMemory* const memory = new DeviceMemory();
  return *memory;
}

DeviceMemory::DeviceMemory() : capacity_(machine().device_bytes - machine().occupied_bytes) {
  const std::size_t bytes = round_up(capacity_, page) + page;
  void* range = mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (range == MAP_FAILED) throw std::bad_alloc();
  const auto address = reinterpret_cast<std::uintptr_t>(range);
  begin_ = static_cast<std::byte*>(range) + (round_up(address, page) - address);
  madvise(begin_, round_up(capacity_, page), MADV_HUGEPAGE);  // or small ones
  free_[begin_] = capacity_;
  watch_segmentation_faults();
}

void* DeviceMemory::allocate(std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  const std::size_t block_bytes = round_up(bytes == 0 ? 1 : bytes, alignment) + red_zone;
  std::byte* const block = take(block_bytes);
  if (block == nullptr) return nullptr;
  allocations_[block] = {bytes, block_bytes};
  used_ += block_bytes;
  most_used_ = std::max(most_used_, used_);
  const auto end = static_cast<std::size_t>(block - begin_) + block_bytes;
  if (end > highest_) highest_ = round_up(end, page);
  allow(block, bytes);
  forbid(block + bytes, block_bytes - bytes);
  return block;
}

std::byte* DeviceMemory::take(std::size_t bytes) {
  for (auto it = free_.begin(); it != free_.end(); ++it) {
    const auto [block, block_bytes] = *it;
    if (block_bytes < bytes) continue;
    free_.erase(it);
    if (block_bytes > bytes) free_[block + bytes] = block_bytes - bytes;
    return block;
  }
  return nullptr;
}

void DeviceMemory::release(void* memory) {
  fill_with_nan(memory);
  const std::lock_guard lock(mutex_);
  const auto found = allocations_.find(static_cast<std::byte*>(memory));
  if (found == allocations_.end()) throw std::logic_error("memory is freed that was not allocated");
  const auto [block, allocation] = *found;
  forbid(block, allocation.block_bytes);
  used_ -= allocation.block_bytes;
  allocations_.erase(found);
  give_back(block, allocation.block_bytes);
}

void DeviceMemory::give_back(std::byte* block, std::size_t bytes) {
  auto next = free_.upper_bound(block);
  if (next != free_.end() && block + bytes == next->first) {
    bytes += next->second;
    next = free_.erase(next);
  }
  if (next != free_.begin()) {
    const auto previous = std::prev(next);
    if (previous->first + previous->second == block) {
      previous->second += bytes;
      return;
    }
  }
  free_[block] = bytes;
}

void DeviceMemory::fill_with_nan(void* memory) {
  std::size_t bytes = 0;
  {
    const std::lock_guard lock(mutex_);
    const auto found = allocations_.find(static_cast<std::byte*>(memory));
    if (found == allocations_.end()) return;
    bytes = found->second.bytes;
  }
  std::memset(memory, 0xFF, bytes);
}

bool DeviceMemory::contains(const void* memory, std::size_t bytes) {
  if (!is_device(memory)) return false;
  const std::lock_guard lock(mutex_);
  auto* const address = const_cast<std::byte*>(static_cast<const std::byte*>(memory));
  auto found = allocations_.upper_bound(address);
  if (found == allocations_.begin()) return false;
  --found;
  const auto offset = static_cast<std::size_t>(address - found->first);
  return offset <= found->second.bytes && bytes <= found->second.bytes - offset;
}

bool DeviceMemory::is_device(const void* memory) const {
  const auto* address = static_cast<const std::byte*>(memory);
  return address >= begin_ && address < begin_ + capacity_;
}

std::size_t DeviceMemory::used() {
  const std::lock_guard lock(mutex_);
  return used_;
}

std::size_t DeviceMemory::most_used() {
  const std::lock_guard lock(mutex_);
  return most_used_;
}

void DeviceMemory::set_open(bool open) {
  const std::lock_guard lock(mutex_);
  const std::size_t wanted = open ? highest_ : 0;
  if (wanted == open_bytes_) return;
  mprotect(begin_, open ? highest_ : open_bytes_, open ? PROT_READ | PROT_WRITE : PROT_NONE);
  open_bytes_ = wanted;
}

}  // namespace skrull::simt
