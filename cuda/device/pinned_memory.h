#pragma once

#include <cstdint>

namespace skrull {

/// Host memory that a GPU copies from and to by itself; plain memory where CUDA refuses (no GPU, a limit on locked
/// pages): copies are then slower and keep the host waiting, and do the same. Move-only.
class PinnedMemory {
 public:
  PinnedMemory() = default;
  explicit PinnedMemory(std::int64_t bytes);
  ~PinnedMemory() { free(); }
  PinnedMemory(PinnedMemory&& other) noexcept;
  PinnedMemory& operator=(PinnedMemory&& other) noexcept;

  char* data() const { return data_; }
  std::int64_t bytes() const { return bytes_; }

 private:
  void free() noexcept;

  char* data_ = nullptr;
  std::int64_t bytes_ = 0;
  bool pinned_ = false;
};

}  // namespace skrull
