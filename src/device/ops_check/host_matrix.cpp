#include "ops_check/host_matrix.h"

#include <algorithm>
#include <cstring>

#include "skrull/core/error.h"
#include "skrull/core/rng.h"

namespace skrull {

namespace {

/// As a bfloat16 or fp32 some 10^36: a guard that enters a sum shows.
constexpr char guard = 0x7B;

template <class T>
T read(const char* at) {
  T value;
  std::memcpy(static_cast<void*>(&value), at, sizeof(T));
  return value;
}

template <class T>
void write(char* at, T value) {
  std::memcpy(at, static_cast<const void*>(&value), sizeof(T));
}

}  // namespace

HostMatrix::HostMatrix(DType dtype, std::int64_t rows, std::int64_t cols, std::int64_t padding, std::int64_t offset)
    : dtype_(dtype),
      rows_(rows),
      cols_(cols),
      stride_(cols + padding),
      offset_(offset),
      bytes_(static_cast<std::size_t>((offset + rows * stride_ + 1) * size_of(dtype)), guard) {
  fill([](std::int64_t, std::int64_t) { return 0.0; });
}

HostMatrix HostMatrix::random(DType dtype, std::int64_t rows, std::int64_t cols, std::string_view name, double scale,
                              std::int64_t padding, std::int64_t offset) {
  HostMatrix matrix(dtype, rows, cols, padding, offset);
  Rng rng(7, name);
  matrix.fill([&](std::int64_t, std::int64_t) { return scale * rng.normal(); });
  return matrix;
}

HostMatrix HostMatrix::of(DType dtype, const std::vector<double>& row) {
  HostMatrix matrix(dtype, 1, static_cast<std::int64_t>(row.size()));
  matrix.fill([&](std::int64_t, std::int64_t j) { return row[static_cast<std::size_t>(j)]; });
  return matrix;
}

double HostMatrix::operator()(std::int64_t row, std::int64_t col) const {
  const char* at = bytes_.data() + position(row, col);
  switch (dtype_) {
    case DType::float32:
      return read<float>(at);
    case DType::bfloat16:
      return static_cast<float>(read<bfloat16>(at));
    case DType::float64:
      return read<double>(at);
    case DType::int32:
      return read<std::int32_t>(at);
    case DType::uint8:
      return read<std::uint8_t>(at);
    default:
      throw RunFailure("no host matrices of this dtype");
  }
}

void HostMatrix::set(std::int64_t row, std::int64_t col, double value) {
  char* at = bytes_.data() + position(row, col);
  switch (dtype_) {
    case DType::float32:
      return write(at, static_cast<float>(value));
    case DType::bfloat16:
      return write(at, bfloat16(static_cast<float>(value)));
    case DType::float64:
      return write(at, value);
    case DType::int32:
      return write(at, static_cast<std::int32_t>(value));
    case DType::uint8:
      return write(at, static_cast<std::uint8_t>(static_cast<std::int32_t>(value)));
    default:
      throw RunFailure("no host matrices of this dtype");
  }
}

void HostMatrix::fill(const std::function<double(std::int64_t, std::int64_t)>& value) {
  for (std::int64_t i = 0; i < rows_; ++i) {
    for (std::int64_t j = 0; j < cols_; ++j) set(i, j, value(i, j));
  }
}

bool HostMatrix::is_guard(std::int64_t begin, std::int64_t end) const {
  return std::all_of(bytes_.begin() + begin, bytes_.begin() + end, [](char byte) { return byte == guard; });
}

bool HostMatrix::guards_intact() const {
  if (!is_guard(0, begin())) return false;
  for (std::int64_t i = 0; i < rows_; ++i) {
    if (!is_guard(position(i, cols_), position(i + 1, 0))) return false;
  }
  return is_guard(position(rows_, 0), static_cast<std::int64_t>(bytes_.size()));
}

}  // namespace skrull
