// Conversions, sums and factors: one pass over memory each.

#include "device/cuda_stream.h"
#include "kernel/elementwise.h"
#include "kernel/vector_access.h"
#include "ops/cuda_ops.h"
#include "skrull/device/operation_operands.h"

namespace skrull {

namespace {

template <class S, class T>
inline constexpr int widest =
    elements_of_16_bytes<S> > elements_of_16_bytes<T> ? elements_of_16_bytes<S> : elements_of_16_bytes<T>;

template <int n>
struct Values {
  float x[n];
};

template <class S, class T>
struct Cast {
  static constexpr int width = widest<S, T>;
  template <int n>
  using Piece = Values<n>;

  Rows<const S> source;
  Rows<T> target;

  template <int n>
  __device__ Piece<n> read(std::int64_t row, std::int64_t col) const {
    Piece<n> piece;
    load(source.at(row, col), piece.x);
    return piece;
  }
  template <int n>
  __device__ void write(std::int64_t row, std::int64_t col, const Piece<n>& piece) const {
    store(target.at(row, col), piece.x);
  }
};

template <class S, class T>
struct Add {
  static constexpr int width = widest<S, T>;
  template <int n>
  using Piece = Values<n>;

  Rows<const S> source;
  Rows<T> target;

  template <int n>
  __device__ Piece<n> read(std::int64_t row, std::int64_t col) const {
    Piece<n> piece;
    Piece<n> old;
    load(source.at(row, col), piece.x);
    load<n>(target.at(row, col), old.x);
#pragma unroll
    for (int i = 0; i < n; ++i) piece.x[i] += old.x[i];
    return piece;
  }
  template <int n>
  __device__ void write(std::int64_t row, std::int64_t col, const Piece<n>& piece) const {
    store(target.at(row, col), piece.x);
  }
};

template <class T>
struct Scale {
  static constexpr int width = elements_of_16_bytes<T>;
  template <int n>
  using Piece = Values<n>;

  float factor;
  Rows<T> x;

  template <int n>
  __device__ Piece<n> read(std::int64_t row, std::int64_t col) const {
    Piece<n> piece;
    load<n>(x.at(row, col), piece.x);
    return piece;
  }
  template <int n>
  __device__ void write(std::int64_t row, std::int64_t col, const Piece<n>& piece) const {
    Piece<n> scaled;
#pragma unroll
    for (int i = 0; i < n; ++i) scaled.x[i] = piece.x[i] * factor;
    store(x.at(row, col), scaled.x);
  }
};

/// Queues Operation<S, T>; these are the elements of source and target.
template <template <class, class> class Operation, class S, class T>
void launch_source_to_target(Stream& stream, const ConstTensorView& source, const TensorView& target) {
  const Operation<S, T> operation{rows_of<S>(source), rows_of<T>(target)};
  constexpr int width = Operation<S, T>::width;
  launch_elementwise(cuda_stream(stream), operation, joined_rows(source, ConstTensorView(target)),
                     rows_in_pieces_of(width, source) && rows_in_pieces_of(width, target));
}

}  // namespace

void CudaOps::cast(Stream& stream, ConstTensorView source, TensorView target) {
  check_cast(source, target);
  if (source.dtype() == target.dtype()) return copy_rows(stream, source, target);
  if (source.dtype() == DType::float32) return launch_source_to_target<Cast, float, bf16>(stream, source, target);
  launch_source_to_target<Cast, bf16, float>(stream, source, target);
}

void CudaOps::add(Stream& stream, ConstTensorView source, TensorView target) {
  check_add(source, target);
  with_element(source.dtype(), [&]<class S>(std::type_identity<S>) {
    with_element(target.dtype(),
                 [&]<class T>(std::type_identity<T>) { launch_source_to_target<Add, S, T>(stream, source, target); });
  });
}

void CudaOps::scale(Stream& stream, float factor, TensorView x) {
  check_scale(x);
  with_element(x.dtype(), [&]<class T>(std::type_identity<T>) {
    launch_elementwise(cuda_stream(stream), Scale<T>{factor, rows_of<T>(x)}, joined_rows(x),
                       rows_in_pieces_of(Scale<T>::width, x));
  });
}

}  // namespace skrull
