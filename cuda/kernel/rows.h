#pragma once
// Matrices as kernels take them.

#include <cstdint>
#include <type_traits>

#include "kernel/kernel.h"
#include "skrull/core/tensor.h"

namespace skrull {

/// Rows of elements T, `stride` elements apart.
template <class T>
struct Rows {
  T* data;
  std::int64_t stride;

  __device__ T* row(std::int64_t index) const { return data + index * stride; }
  __device__ T* at(std::int64_t row, std::int64_t col) const { return data + row * stride + col; }
};

/// A view whose elements are T on the device; of an empty view, what is never read.
template <class T>
Rows<T> rows_of(const TensorView& view) {
  return {static_cast<T*>(view.data()), view.row_stride()};
}
template <class T>
Rows<const T> rows_of(const ConstTensorView& view) {
  return {static_cast<const T*>(view.data()), view.row_stride()};
}

/// The rows of several operands as one long row, where that is the same.
struct MatrixSize {
  std::int64_t rows;
  std::int64_t cols;
};
template <class... Views>
MatrixSize joined_rows(const ConstTensorView& first, const Views&... others) {
  if (first.contiguous() && (others.contiguous() && ...)) return {1, first.elements()};
  return {first.rows(), first.cols()};
}

/// Whether every row begins at a multiple of `elements` elements.
inline bool rows_aligned_to(int elements, const ConstTensorView& view) {
  const std::int64_t bytes = elements * size_of(view.dtype());
  return reinterpret_cast<std::uintptr_t>(view.data()) % static_cast<std::uintptr_t>(bytes) == 0 &&
         (view.rows() <= 1 || view.row_stride() % elements == 0);
}
/// The same for pieces of `elements` elements that are read in 16 bytes at a time, or in one access when smaller.
inline bool rows_in_pieces_of(int elements, const ConstTensorView& view) {
  constexpr int largest_access = 16;
  const auto elements_of_access = static_cast<int>(largest_access / size_of(view.dtype()));
  return rows_aligned_to(elements < elements_of_access ? elements : elements_of_access, view);
}

/// Calls fn(std::type_identity<T>) with the device's element type of a computable dtype (checked before).
template <class F>
void with_element(DType dtype, F&& fn) {
  if (dtype == DType::bfloat16) {
    fn(std::type_identity<bf16>{});
  } else {
    fn(std::type_identity<float>{});
  }
}

/// Elements that fill an access of 16 bytes.
template <class T>
inline constexpr int elements_of_16_bytes = 16 / static_cast<int>(sizeof(T));

}  // namespace skrull
