#pragma once
// xxHash (XXH3, 128 bit) of bytes and files: cache keys and integrity checks, not security.

#include <cstddef>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

namespace skrull {

/// Streaming checksum. Parts are hashed one after the other; add_field() also hashes the length, so that
/// ("ab","c") and ("a","bc") differ.
class Checksum {
 public:
  Checksum();
  ~Checksum();
  Checksum(Checksum&&) noexcept;
  Checksum& operator=(Checksum&&) noexcept;

  /// `between`, where it is given, is called between parts of 64 MiB; what it throws ends the work.
  void add(const void* data, std::size_t bytes, const std::function<void()>& between = {});
  void add_field(std::string_view text, const std::function<void()>& between = {});
  /// Content of a file; throws InvalidInput when it can't be read.
  void add_file(const std::filesystem::path& file);
  /// 32 hexadecimal digits of everything added so far.
  std::string hex() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace skrull
