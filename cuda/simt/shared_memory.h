#pragma once
// A block's shared memory: filled with NaN, of exactly the size asked for.

#include <cstddef>
#include <memory>
#include <vector>

namespace skrull::simt {

/// Memory whose bytes are all ones, NaN as float and bfloat16. Under the address sanitizer a red zone follows directly.
class PoisonedMemory {
 public:
  explicit PoisonedMemory(std::size_t bytes);
  ~PoisonedMemory();
  PoisonedMemory(const PoisonedMemory&) = delete;
  PoisonedMemory& operator=(const PoisonedMemory&) = delete;

  void* data() const { return data_; }

 private:
  std::size_t bytes_;
  void* data_ = nullptr;
};

class SharedMemory {
 public:
  explicit SharedMemory(std::size_t dynamic_bytes) : dynamic_bytes_(dynamic_bytes) {}
  /// New memory, for the next block.
  void renew();

  void* dynamic() const { return dynamic_->data(); }
  /// The array declared at `site`: the first thread to come makes it.
  void* static_array(const void* site, std::size_t bytes);

 private:
  struct StaticArray {
    const void* site;
    std::unique_ptr<PoisonedMemory> memory;
  };
  std::size_t dynamic_bytes_;
  std::size_t static_bytes_ = 0;
  std::unique_ptr<PoisonedMemory> dynamic_;
  std::vector<StaticArray> static_arrays_;
};

}  // namespace skrull::simt
