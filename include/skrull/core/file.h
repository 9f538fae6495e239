#pragma once
// Files: mapped reading and writing that never leaves half a file under the final name.

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

namespace skrull {

/// Read-only memory map of a whole file. Move-only; unmaps in the destructor.
class MappedFile {
 public:
  MappedFile() = default;
  /// Throws InvalidInput (missing, unreadable, not a regular file) with the path and the system's reason.
  explicit MappedFile(const std::filesystem::path& file);
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;

  std::span<const char> bytes() const { return {data_, size_}; }
  std::string_view text() const { return {data_, size_}; }
  std::int64_t size() const { return static_cast<std::int64_t>(size_); }

 private:
  const char* data_ = nullptr;
  std::size_t size_ = 0;
};

/// Whole file as text. Throws InvalidInput when it can't be read.
std::string read_file(const std::filesystem::path& file);

/// Sequential writer to `<file>.partial`; commit() flushes to disk and renames to `file`. Without commit() the partial
/// file is removed and an older `file` stays as it was. Every failure (disk full, short write) throws RunFailure with
/// the path and the system's reason.
class AtomicFileWriter {
 public:
  explicit AtomicFileWriter(std::filesystem::path file);
  ~AtomicFileWriter();
  AtomicFileWriter(const AtomicFileWriter&) = delete;
  AtomicFileWriter& operator=(const AtomicFileWriter&) = delete;

  void write(const void* data, std::int64_t bytes);
  void write(std::string_view text) { write(text.data(), static_cast<std::int64_t>(text.size())); }
  void commit();

 private:
  std::filesystem::path file_;
  std::filesystem::path partial_;
  int descriptor_ = -1;
};

/// AtomicFileWriter in one call.
void write_file_atomically(const std::filesystem::path& file, std::string_view text);

/// Flushes a folder's entries (its renames) to disk. Throws RunFailure.
void sync_folder(const std::filesystem::path& folder);

}  // namespace skrull
