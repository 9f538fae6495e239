#include "skrull/core/raw_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <new>
#include <utility>

#include "skrull/core/error.h"

namespace skrull {
namespace {

std::string last_reason() {
  return std::strerror(errno);
}

bool is_aligned(const char* memory) {
  return reinterpret_cast<std::uintptr_t>(memory) % direct_alignment == 0;
}

}  // namespace

AlignedMemory::AlignedMemory(std::int64_t bytes)
    : memory_(static_cast<char*>(std::aligned_alloc(direct_alignment, static_cast<std::size_t>(aligned_up(bytes))))) {
  if (!memory_) throw std::bad_alloc();
}

void AlignedMemory::Free::operator()(char* memory) const {
  std::free(memory);  // NOLINT(cppcoreguidelines-no-malloc): of aligned_alloc
}

RawFile::RawFile(std::filesystem::path file, Access access) : file_(std::move(file)) {
  const bool writes = access == Access::write;
  // O_NONBLOCK: opening a named pipe must not wait for its other end.
  const int flags = (writes ? O_WRONLY | O_CREAT : O_RDONLY | O_NONBLOCK) | O_CLOEXEC;
  descriptor_ = ::open(file_.c_str(), flags, 0644);
  if (descriptor_ < 0) {
    if (writes) throw_run_failure("{}: can't be created: {}", file_.string(), last_reason());
    throw_invalid_input("{}: can't be opened: {}", file_.string(), last_reason());
  }
  direct_ = ::open(file_.c_str(), flags | O_DIRECT, 0644);
  is_direct_ = direct_ >= 0;
}

RawFile::~RawFile() {
  if (direct_ >= 0) ::close(direct_);
  ::close(descriptor_);
}

RawFile::Step RawFile::next_step(const char* memory, std::int64_t bytes, std::int64_t offset) const {
  if (!is_direct_) return {descriptor_, bytes};
  const std::int64_t to_border = aligned_up(offset) - offset;
  if (to_border == 0 && is_aligned(memory) && bytes >= direct_alignment) return {direct_, aligned_down(bytes)};
  return {descriptor_, to_border == 0 || to_border > bytes ? bytes : to_border};
}

bool RawFile::give_up_direct(const Step& step) {
  if (step.descriptor != direct_ || (errno != EINVAL && errno != EOPNOTSUPP)) return false;
  is_direct_ = false;
  return true;
}

void RawFile::fail_to_write(const std::string& reason) const {
  throw_run_failure("{}: writing failed: {}", file_.string(), reason);
}

void RawFile::write(const char* data, std::int64_t bytes, std::int64_t offset) {
  while (bytes > 0) {
    const Step step = next_step(data, bytes, offset);
    const ssize_t written = ::pwrite(step.descriptor, data, static_cast<std::size_t>(step.bytes), offset);
    if (written < 0 && (errno == EINTR || give_up_direct(step))) continue;
    if (written <= 0) fail_to_write(written < 0 ? last_reason() : "nothing was written");
    data += written;
    bytes -= written;
    offset += written;
  }
}

std::int64_t RawFile::read(char* target, std::int64_t bytes, std::int64_t offset) {
  std::int64_t done = 0;
  while (done < bytes) {
    const Step step = next_step(target + done, bytes - done, offset + done);
    const ssize_t got = ::pread(step.descriptor, target + done, static_cast<std::size_t>(step.bytes), offset + done);
    if (got < 0 && (errno == EINTR || give_up_direct(step))) continue;
    if (got < 0) throw_invalid_input("{}: can't be read: {}", file_.string(), last_reason());
    if (got == 0) break;
    done += got;
  }
  return done;
}

void RawFile::reserve(std::int64_t bytes) {
  if (bytes == 0 || ::fallocate(descriptor_, 0, 0, bytes) == 0) return;
  if (errno != EOPNOTSUPP && errno != ENOSYS) fail_to_write(last_reason());
  if (::ftruncate(descriptor_, bytes) != 0) fail_to_write(last_reason());
}

void RawFile::flush() {
  if (::fsync(descriptor_) != 0) throw_run_failure("{}: flushing failed: {}", file_.string(), last_reason());
}

}  // namespace skrull
