#include "skrull/core/file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <system_error>
#include <utility>

#include "skrull/core/error.h"

namespace skrull {
namespace {

std::string last_reason() {
  return std::strerror(errno);
}

/// Closes on scope exit.
struct Descriptor {
  int value;
  explicit Descriptor(int descriptor) : value(descriptor) {}
  ~Descriptor() {
    if (value >= 0) ::close(value);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
};

}  // namespace

MappedFile::MappedFile(const std::filesystem::path& file) {
  // O_NONBLOCK: opening a named pipe must not wait for a writer.
  const Descriptor descriptor(::open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (descriptor.value < 0) throw_invalid_input("{}: can't be opened: {}", file.string(), last_reason());
  struct stat status {};
  if (::fstat(descriptor.value, &status) != 0) throw_invalid_input("{}: {}", file.string(), last_reason());
  if (S_ISDIR(status.st_mode)) throw_invalid_input("{}: is a folder, expected a file", file.string());
  if (!S_ISREG(status.st_mode)) throw_invalid_input("{}: expected a regular file", file.string());
  size_ = static_cast<std::size_t>(status.st_size);
  if (size_ == 0) return;
  void* address = ::mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, descriptor.value, 0);
  if (address == MAP_FAILED) throw_invalid_input("{}: can't be mapped: {}", file.string(), last_reason());
  data_ = static_cast<const char*>(address);
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(const_cast<char*>(data_), size_);
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

std::string read_file(const std::filesystem::path& file) {
  return std::string(MappedFile(file).text());
}

AtomicFileWriter::AtomicFileWriter(std::filesystem::path file) : file_(std::move(file)), partial_(file_) {
  partial_ += ".partial";
  descriptor_ = ::open(partial_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (descriptor_ < 0) throw_run_failure("{}: can't be created: {}", partial_.string(), last_reason());
}

AtomicFileWriter::~AtomicFileWriter() {
  if (descriptor_ < 0) return;
  ::close(descriptor_);
  ::unlink(partial_.c_str());
}

void AtomicFileWriter::write(const void* data, std::int64_t bytes) {
  const auto* next = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t written = ::write(descriptor_, next, static_cast<std::size_t>(bytes));
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) {
      throw_run_failure("{}: writing failed: {}; the file it would replace is unchanged", partial_.string(),
                        written < 0 ? last_reason() : "nothing was written");
    }
    next += written;
    bytes -= written;
  }
}

void AtomicFileWriter::commit() {
  if (::fsync(descriptor_) != 0) throw_run_failure("{}: flushing failed: {}", partial_.string(), last_reason());
  if (::close(std::exchange(descriptor_, -1)) != 0 || ::rename(partial_.c_str(), file_.c_str()) != 0) {
    const std::string reason = last_reason();
    ::unlink(partial_.c_str());
    throw_run_failure("{}: can't be completed: {}", file_.string(), reason);
  }
}

void write_file_atomically(const std::filesystem::path& file, std::string_view text) {
  AtomicFileWriter writer(file);
  writer.write(text);
  writer.commit();
}

void sync_folder(const std::filesystem::path& folder) {
  const Descriptor descriptor(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (descriptor.value < 0 || ::fsync(descriptor.value) != 0) {
    throw_run_failure("{}: can't be flushed: {}", folder.string(), last_reason());
  }
}

}  // namespace skrull
