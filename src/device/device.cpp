#include "skrull/device/device.h"

#include <algorithm>
#include <utility>

#include "skrull/core/error.h"
#include "skrull/core/narrow.h"
#include "skrull/core/text.h"

namespace skrull {

Buffer::Buffer(Device& device, MemoryPlace place, void* data, std::int64_t bytes, std::string category)
    : device_(&device), place_(place), data_(data), bytes_(bytes), category_(std::move(category)) {}

Buffer::~Buffer() {
  if (device_ == nullptr || data_ == nullptr) return;
  if (place_ == MemoryPlace::host) {
    device_->host_memory_.remove(category_, bytes_);
    device_->free_on_host_raw(data_, bytes_);
  } else {
    device_->memory_.remove(category_, bytes_);
    device_->free_raw(data_, bytes_);
  }
}

Buffer::Buffer(Buffer&& other) noexcept
    : device_(std::exchange(other.device_, nullptr)),
      place_(other.place_),
      data_(std::exchange(other.data_, nullptr)),
      bytes_(std::exchange(other.bytes_, 0)),
      category_(std::move(other.category_)) {}

Buffer& Buffer::operator=(Buffer&& other) noexcept {
  std::swap(device_, other.device_);
  std::swap(place_, other.place_);
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  category_.swap(other.category_);
  const Buffer held(std::move(other));  // and frees it
  return *this;
}

TensorView Buffer::view(DType dtype, std::int64_t rows, std::int64_t cols, std::int64_t byte_offset) const {
  const std::int64_t wanted = checked_multiply(checked_multiply(rows, cols), size_of(dtype));
  require(
      byte_offset >= 0 && byte_offset % size_of(dtype) == 0 && byte_offset <= bytes_ && wanted <= bytes_ - byte_offset,
      "a view of {} x {} {} at byte {} does not fit the {} bytes of the buffer '{}'", rows, cols, name_of(dtype),
      byte_offset, bytes_, category_);
  return {static_cast<char*>(data_) + byte_offset, dtype, rows, cols};
}

void MemoryLedger::add(const std::string& category, std::int64_t bytes) {
  by_category_[category] += bytes;
  current_ += bytes;
  peak_ = std::max(peak_, current_);
}

void MemoryLedger::remove(const std::string& category, std::int64_t bytes) {
  const auto entry = by_category_.find(category);
  if (entry != by_category_.end()) entry->second -= bytes;
  current_ -= bytes;
}

namespace {

std::string memory_table(const MemoryLedger& memory) {
  std::string table;
  for (const auto& [category, bytes] : memory.by_category()) {
    table += fmt::format("\n  {:<24} {:>12}", category, format_bytes(bytes));
  }
  return table + fmt::format("\n  {:<24} {:>12}", "all", format_bytes(memory.current_bytes()));
}

}  // namespace

Buffer Device::allocate(std::int64_t bytes, std::string category) {
  require(bytes >= 0, "cannot allocate {} bytes for '{}'", bytes, category);
  if (bytes == 0) return {*this, MemoryPlace::device, nullptr, 0, std::move(category)};
  void* data = allocate_raw(bytes);
  if (data == nullptr) {
    throw OutOfMemory(
        fmt::format("out of memory: {} more were asked for '{}', {} are free on {}. Held now:{}\n"
                    "Lower bucket_tokens, turn on gradient_checkpointing, or use more ranks.",
                    format_bytes(bytes), category, format_bytes(free_bytes()), description(), memory_table(memory_)));
  }
  memory_.add(category, bytes);
  return {*this, MemoryPlace::device, data, bytes, std::move(category)};
}

Buffer Device::allocate(DType dtype, std::int64_t rows, std::int64_t cols, std::string category) {
  return allocate(checked_multiply(checked_multiply(rows, cols), size_of(dtype)), std::move(category));
}

Buffer Device::allocate_on_host(DType dtype, std::int64_t rows, std::int64_t cols, std::string category) {
  const std::int64_t bytes = checked_multiply(checked_multiply(rows, cols), size_of(dtype));
  void* data = bytes > 0 ? allocate_on_host_raw(bytes) : nullptr;
  if (data == nullptr && bytes > 0) {
    throw OutOfMemory(fmt::format(
        "out of host memory: {} more were asked for '{}'. Held there now:{}\n"
        "Use more ranks on other machines, or turn off what keeps training state on the host (offload_optimizer).",
        format_bytes(bytes), category, memory_table(host_memory_)));
  }
  if (bytes > 0) host_memory_.add(category, bytes);
  return {*this, MemoryPlace::host, data, bytes, std::move(category)};
}

}  // namespace skrull
