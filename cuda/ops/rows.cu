// Rows moved whole, of any dtype: copies, gather and scatter by index, zeros. They are moved in the largest units that
// addresses, strides and length allow.

#include <algorithm>

#include "device/cuda_stream.h"
#include "kernel/elementwise.h"
#include "ops/cuda_ops.h"
#include "skrull/device/operation_operands.h"

namespace skrull {

namespace {

/// The rows of a view in units U.
template <class U, class Void>
auto units_of(const BasicTensorView<Void>& view) {
  using Unit = std::conditional_t<std::is_const_v<Void>, const U, U>;
  constexpr auto unit = static_cast<std::int64_t>(sizeof(U));
  return Rows<Unit>{static_cast<Unit*>(view.data()), view.row_stride() * size_of(view.dtype()) / unit};
}

template <class U>
struct Moved {
  U unit;
};

/// Row from(i) of the source to row to(i) of the target; a null index leaves the row's own number.
template <class U>
struct MoveRows {
  static constexpr int width = 1;
  template <int n>
  using Piece = Moved<U>;

  Rows<const U> source;
  const std::int32_t* from;
  Rows<U> target;
  const std::int32_t* to;

  template <int n>
  __device__ Moved<U> read(std::int64_t row, std::int64_t col) const {
    return {*source.at(from == nullptr ? row : from[row], col)};
  }
  template <int n>
  __device__ void write(std::int64_t row, std::int64_t col, const Moved<U>& moved) const {
    *target.at(to == nullptr ? row : to[row], col) = moved.unit;
  }
};

template <class U>
struct ZeroRows {
  static constexpr int width = 1;
  template <int n>
  struct Piece {};

  Rows<U> target;

  template <int n>
  __device__ Piece<n> read(std::int64_t /*row*/, std::int64_t /*col*/) const {
    return {};
  }
  template <int n>
  __device__ void write(std::int64_t row, std::int64_t col, const Piece<n>& /*piece*/) const {
    *target.at(row, col) = U{};
  }
};

/// The largest power of two, at most 16, that divides the address and the stride of the view, and `row_bytes`.
std::int64_t largest_unit(const ConstTensorView& view, std::int64_t row_bytes) {
  auto places = reinterpret_cast<std::uintptr_t>(view.data()) | static_cast<std::uintptr_t>(row_bytes);
  if (view.rows() > 1) places |= static_cast<std::uintptr_t>(view.row_stride() * size_of(view.dtype()));
  std::int64_t unit = 16;
  while (places % static_cast<std::uintptr_t>(unit) != 0) unit /= 2;
  return unit;
}

/// Calls fn(std::type_identity<U>) with a type of `bytes` bytes.
template <class F>
void with_unit(std::int64_t bytes, F&& fn) {
  switch (bytes) {
    case 16:
      return fn(std::type_identity<uint4>{});
    case 8:
      return fn(std::type_identity<uint2>{});
    case 4:
      return fn(std::type_identity<std::uint32_t>{});
    case 2:
      return fn(std::type_identity<std::uint16_t>{});
    default:
      return fn(std::type_identity<std::uint8_t>{});
  }
}

/// Moves `size` elements of rows that may be picked by index.
void move_rows(cudaStream_t stream, const ConstTensorView& source, const std::int32_t* from, const TensorView& target,
               const std::int32_t* to, MatrixSize size) {
  const std::int64_t row_bytes = size.cols * size_of(source.dtype());
  with_unit(std::min(largest_unit(source, row_bytes), largest_unit(target, row_bytes)),
            [&]<class U>(std::type_identity<U>) {
              const MoveRows<U> operation{units_of<U>(source), from, units_of<U>(target), to};
              constexpr auto unit = static_cast<std::int64_t>(sizeof(U));
              launch_elementwise(stream, operation, MatrixSize{size.rows, row_bytes / unit}, true);
            });
}

const std::int32_t* indices_of(const ConstTensorView& rows) {
  return static_cast<const std::int32_t*>(rows.data());
}

}  // namespace

void CudaOps::copy_rows(Stream& stream, ConstTensorView source, TensorView target) {
  move_rows(cuda_stream(stream), source, nullptr, target, nullptr, joined_rows(source, ConstTensorView(target)));
}

void CudaOps::gather_rows(Stream& stream, ConstTensorView source, ConstTensorView rows, TensorView target) {
  check_gather_rows(source, rows, target);
  move_rows(cuda_stream(stream), source, indices_of(rows), target, nullptr, {target.rows(), target.cols()});
}

void CudaOps::scatter_rows(Stream& stream, ConstTensorView source, ConstTensorView rows, TensorView target) {
  check_scatter_rows(source, rows, target);
  move_rows(cuda_stream(stream), source, nullptr, target, indices_of(rows), {source.rows(), source.cols()});
}

void CudaOps::embedding_forward(Stream& stream, ConstTensorView ids, ConstTensorView table, TensorView out) {
  gather_rows(stream, table, ids, out);
}

void CudaOps::fill_zero(Stream& stream, TensorView x) {
  const MatrixSize size = joined_rows(x);
  const std::int64_t row_bytes = size.cols * size_of(x.dtype());
  with_unit(largest_unit(x, row_bytes), [&]<class U>(std::type_identity<U>) {
    constexpr auto unit = static_cast<std::int64_t>(sizeof(U));
    launch_elementwise(cuda_stream(stream), ZeroRows<U>{units_of<U>(x)}, MatrixSize{size.rows, row_bytes / unit}, true);
  });
}

}  // namespace skrull
