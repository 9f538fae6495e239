#pragma once

#include <cstdint>

namespace skrull {

/// Host memory that a GPU copies from and to by itself; plain memory where CUDA refuses (no GPU, a limit on locked
/// pages): copies are then slower and may keep the host waiting. Throws std::bad_alloc where the host has no more.
/// Move-only.
class PinnedMemory {
 public:
  PinnedMemory() = default;
  explicit PinnedMemory(std::int64_t bytes);
  ~PinnedMemory() { free(); }
  PinnedMemory(PinnedMemory&& other) noexcept;
  PinnedMemory& operator=(PinnedMemory&& other) noexcept;

  char* data() const { return data_; }
  std::int64_t bytes() const { return bytes_; }
  bool pinned() const { return pinned_; }

 private:
  void free() noexcept;

  char* data_ = nullptr;
  std::int64_t bytes_ = 0;
  bool pinned_ = false;
};

}  // namespace skrull
