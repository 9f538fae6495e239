#pragma once
// A file read and written at offsets, past the page cache where that is possible.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>

namespace skrull {

/// Of offsets, sizes and memory addresses that pass the page cache: what every common disk asks for at most.
inline constexpr std::int64_t direct_alignment = 4096;

constexpr std::int64_t aligned_down(std::int64_t offset) {
  return offset / direct_alignment * direct_alignment;
}
constexpr std::int64_t aligned_up(std::int64_t offset) {
  return aligned_down(offset + direct_alignment - 1);
}

/// Memory at an aligned address.
class AlignedMemory {
 public:
  explicit AlignedMemory(std::int64_t bytes);
  char* data() const { return memory_.get(); }

 private:
  struct Free {
    void operator()(char* memory) const;
  };
  std::unique_ptr<char, Free> memory_;
};

/// Aligned ranges of bytes go past the page cache: checkpoints are far larger than what is worth keeping there, and
/// copying into it costs more than the disk. The rest, and everything on file systems that can't do that, goes through
/// it.
class RawFile {
 public:
  enum class Access { read, write };

  /// To write, the file is made when it is missing. Throws InvalidInput (read) or RunFailure (write).
  RawFile(std::filesystem::path file, Access access);
  ~RawFile();
  RawFile(const RawFile&) = delete;
  RawFile& operator=(const RawFile&) = delete;

  // Reads and writes may be made by several threads at once.

  /// Throws RunFailure. `data` is as far from an aligned address as `offset` from an aligned one, or all goes the long
  /// way.
  void write(const char* data, std::int64_t bytes, std::int64_t offset);
  /// Reads up to `bytes` and returns how many there were before the end of the file. Throws InvalidInput.
  std::int64_t read(char* target, std::int64_t bytes, std::int64_t offset);
  /// Sets space aside and gives the file its size. Throws RunFailure.
  void reserve(std::int64_t bytes);
  /// Until everything written is on the disk. Throws RunFailure.
  void flush();

 private:
  /// How much of a transfer can be made in one step, and by which descriptor.
  struct Step {
    int descriptor;
    std::int64_t bytes;
  };
  Step next_step(const char* memory, std::int64_t bytes, std::int64_t offset) const;
  /// After a failed call: whether another way remains.
  bool give_up_direct(const Step& step);
  [[noreturn]] void fail_to_write(const std::string& reason) const;

  std::filesystem::path file_;
  int descriptor_ = -1;
  int direct_ = -1;  ///< -1: not here
  std::atomic<bool> is_direct_ = false;
};

}  // namespace skrull
