#pragma once
// What every device's operations share: checks of their operands, the choice of a dtype, the address of a row.

#include <cstdint>
#include <string_view>
#include <type_traits>
#include <utility>

#include "skrull/core/dtype.h"
#include "skrull/core/error.h"
#include "skrull/core/tensor.h"

namespace skrull {

inline void check_shape(std::string_view operation, std::string_view operand, const ConstTensorView& view,
                        std::int64_t rows, std::int64_t cols) {
  require(view.rows() == rows && view.cols() == cols, "{}: {} is {} x {}, expected {} x {}", operation, operand,
          view.rows(), view.cols(), rows, cols);
}

inline void check_dtype(std::string_view operation, std::string_view operand, const ConstTensorView& view,
                        DType dtype) {
  require(view.dtype() == dtype, "{}: {} is {}, expected {}", operation, operand, name_of(view.dtype()),
          name_of(dtype));
}

inline void check_computable(std::string_view operation, std::string_view operand, const ConstTensorView& view) {
  require(view.dtype() == DType::float32 || view.dtype() == DType::bfloat16,
          "{}: {} is {}, expected float32 or bfloat16", operation, operand, name_of(view.dtype()));
}

inline void check_contiguous(std::string_view operation, std::string_view operand, const ConstTensorView& view) {
  require(view.contiguous(), "{}: {} has {} columns but row stride {}, expected contiguous rows", operation, operand,
          view.cols(), view.row_stride());
}

/// Calls fn(std::type_identity<T>) with the element type of a computable dtype (checked before).
template <class F>
void with_dtype(DType dtype, F&& fn) {
  if (dtype == DType::bfloat16) {
    fn(std::type_identity<bfloat16>{});
  } else {
    fn(std::type_identity<float>{});
  }
}

/// Row `row` of a view whose elements are T.
template <class T>
const T* row_of(const ConstTensorView& view, std::int64_t row) {
  return static_cast<const T*>(view.data()) + row * view.row_stride();
}
template <class T>
T* row_of(const TensorView& view, std::int64_t row) {
  return static_cast<T*>(view.data()) + row * view.row_stride();
}

}  // namespace skrull
