#pragma once
// Non-owning views of row-major matrices, the only shape the trainer computes on: tokens x features.

#include <cstdint>
#include <type_traits>

#include "skrull/core/dtype.h"
#include "skrull/core/error.h"

namespace skrull {

/// A rows x cols matrix whose rows are `row_stride` elements apart (row_stride >= cols). A vector is one row.
/// Does not own its memory, which may lie on any device. `Void` is void or const void.
template <class Void>
class BasicTensorView {
  template <class T>
  using Element = std::conditional_t<std::is_const_v<Void>, const T, T>;

 public:
  BasicTensorView() = default;
  BasicTensorView(Void* data, DType dtype, std::int64_t rows, std::int64_t cols)
      : BasicTensorView(data, dtype, rows, cols, cols) {}
  BasicTensorView(Void* data, DType dtype, std::int64_t rows, std::int64_t cols, std::int64_t row_stride)
      : data_(data), rows_(rows), cols_(cols), row_stride_(row_stride), dtype_(dtype) {
    require(rows >= 0 && cols >= 0 && row_stride >= cols, "bad view: {} rows, {} columns, row stride {}", rows, cols,
            row_stride);
  }
  /// A mutable view converts to a const one.
  template <class Other, class = std::enable_if_t<std::is_const_v<Void> && !std::is_const_v<Other>>>
  BasicTensorView(const BasicTensorView<Other>& other)  // NOLINT(google-explicit-constructor)
      : BasicTensorView(other.data(), other.dtype(), other.rows(), other.cols(), other.row_stride()) {}

  Void* data() const { return data_; }
  DType dtype() const { return dtype_; }
  std::int64_t rows() const { return rows_; }
  std::int64_t cols() const { return cols_; }
  std::int64_t row_stride() const { return row_stride_; }
  std::int64_t elements() const { return rows_ * cols_; }
  bool contiguous() const { return row_stride_ == cols_ || rows_ <= 1; }
  bool empty() const { return elements() == 0; }
  explicit operator bool() const { return data_ != nullptr; }

  /// Typed pointer to element (0, 0). Throws RunFailure when T is not this view's dtype.
  template <class T>
  Element<T>* as() const {
    require(dtype_ == dtype_of<T>, "tensor holds {}, {} was asked for", name_of(dtype_), name_of(dtype_of<T>));
    return static_cast<Element<T>*>(data_);
  }

  /// Rows [begin, begin + count).
  BasicTensorView slice_rows(std::int64_t begin, std::int64_t count) const {
    require(begin >= 0 && count >= 0 && begin + count <= rows_, "rows {}+{} of {}", begin, count, rows_);
    return {offset(begin * row_stride_), dtype_, count, cols_, row_stride_};
  }
  /// Columns [begin, begin + count); keeps the row stride.
  BasicTensorView slice_cols(std::int64_t begin, std::int64_t count) const {
    require(begin >= 0 && count >= 0 && begin + count <= cols_, "columns {}+{} of {}", begin, count, cols_);
    return {offset(begin), dtype_, rows_, count, row_stride_};
  }
  /// The same contiguous elements under another shape.
  BasicTensorView reshape(std::int64_t rows, std::int64_t cols) const {
    require(contiguous() && rows * cols == elements(), "cannot view {}x{} as {}x{}", rows_, cols_, rows, cols);
    return {data_, dtype_, rows, cols};
  }

 private:
  Void* offset(std::int64_t elements) const {
    using Byte = std::conditional_t<std::is_const_v<Void>, const char, char>;
    return static_cast<Byte*>(data_) + elements * size_of(dtype_);
  }

  Void* data_ = nullptr;
  std::int64_t rows_ = 0;
  std::int64_t cols_ = 0;
  std::int64_t row_stride_ = 0;
  DType dtype_ = DType::float32;
};

using TensorView = BasicTensorView<void>;
using ConstTensorView = BasicTensorView<const void>;

}  // namespace skrull
