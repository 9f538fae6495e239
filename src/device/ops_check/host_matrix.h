#pragma once
// Host matrices for checks of operations: filled with seeded values, read back in fp64, with guard elements before,
// between and behind the rows that nobody may touch.

#include <cstdint>
#include <functional>
#include <string_view>
#include <vector>

#include "skrull/core/tensor.h"

namespace skrull {

class HostMatrix {
 public:
  /// Zeros. `padding` elements lie between the end of a row and the next one, `offset` before the first row.
  HostMatrix(DType dtype, std::int64_t rows, std::int64_t cols, std::int64_t padding = 0, std::int64_t offset = 0);

  /// Normal values of a seeded stream, rounded to the dtype.
  static HostMatrix random(DType dtype, std::int64_t rows, std::int64_t cols, std::string_view name, double scale = 1.0,
                           std::int64_t padding = 0, std::int64_t offset = 0);
  static HostMatrix of(DType dtype, const std::vector<double>& row);

  TensorView view() { return view_in(bytes_.data()); }
  ConstTensorView view() const { return {bytes_.data() + begin(), dtype_, rows_, cols_, stride_}; }
  /// The same rows in a copy of bytes() elsewhere.
  TensorView view_in(void* bytes) const { return {static_cast<char*>(bytes) + begin(), dtype_, rows_, cols_, stride_}; }

  std::int64_t rows() const { return rows_; }
  std::int64_t cols() const { return cols_; }
  DType dtype() const { return dtype_; }
  /// Values and guards.
  std::vector<char>& bytes() { return bytes_; }
  const std::vector<char>& bytes() const { return bytes_; }

  /// What the element holds, exactly. Throws RunFailure for a dtype that checks do not know.
  double operator()(std::int64_t row, std::int64_t col) const;
  /// Rounds to the dtype.
  void set(std::int64_t row, std::int64_t col, double value);
  void fill(const std::function<double(std::int64_t row, std::int64_t col)>& value);

  /// Whether the elements round the rows are as they were made.
  bool guards_intact() const;

  bool operator==(const HostMatrix& other) const { return bytes_ == other.bytes_; }

 private:
  std::int64_t begin() const { return offset_ * size_of(dtype_); }
  std::int64_t position(std::int64_t row, std::int64_t col) const {
    return (offset_ + row * stride_ + col) * size_of(dtype_);
  }
  bool is_guard(std::int64_t begin, std::int64_t end) const;

  DType dtype_;
  std::int64_t rows_, cols_, stride_, offset_;
  std::vector<char> bytes_;
};

}  // namespace skrull
