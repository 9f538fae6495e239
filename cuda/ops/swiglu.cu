// SwiGLU: y = silu(gate) * up, and its gradient.

#include "device/cuda_stream.h"
#include "kernel/elementwise.h"
#include "kernel/vector_access.h"
#include "ops/cuda_ops.h"
#include "skrull/device/operation_operands.h"

namespace skrull {

namespace {

/// 1 / (1 + e^-x): 0 and 1 at the ends. The instructions of bfloat16 are fast ones, whose error its rounding hides.
template <class T>
__device__ float sigmoid(float x) {
  if constexpr (std::is_same_v<T, bf16>) {
    return __fdividef(1.0F, 1.0F + __expf(-x));
  } else {
    return 1.0F / (1.0F + expf(-x));
  }
}

template <class T>
struct SwigluForward {
  static constexpr int width = elements_of_16_bytes<T>;
  template <int n>
  struct Piece {
    float gate[n], up[n];
  };

  Rows<const T> gate_up;
  Rows<T> y;
  std::int64_t cols;  ///< of y

  template <int n>
  __device__ Piece<n> read(std::int64_t row, std::int64_t col) const {
    Piece<n> piece;
    load(gate_up.at(row, col), piece.gate);
    load(gate_up.at(row, cols + col), piece.up);
    return piece;
  }
  template <int n>
  __device__ void write(std::int64_t row, std::int64_t col, const Piece<n>& piece) const {
    float out[n];
#pragma unroll
    for (int i = 0; i < n; ++i) out[i] = piece.gate[i] * sigmoid<T>(piece.gate[i]) * piece.up[i];
    store(y.at(row, col), out);
  }
};

template <class T>
struct SwigluBackward {
  static constexpr int width = elements_of_16_bytes<T>;
  template <int n>
  struct Piece {
    float gate[n], up[n], dy[n];
  };

  Rows<const T> gate_up;
  Rows<const T> dy;
  Rows<T> dgate_up;
  std::int64_t cols;  ///< of dy

  template <int n>
  __device__ Piece<n> read(std::int64_t row, std::int64_t col) const {
    Piece<n> piece;
    load(gate_up.at(row, col), piece.gate);
    load(gate_up.at(row, cols + col), piece.up);
    load(dy.at(row, col), piece.dy);
    return piece;
  }
  template <int n>
  __device__ void write(std::int64_t row, std::int64_t col, const Piece<n>& piece) const {
    float dgate[n];
    float dup[n];
#pragma unroll
    for (int i = 0; i < n; ++i) {
      const float gate = piece.gate[i];
      const float s = sigmoid<T>(gate);
      dgate[i] = piece.dy[i] * piece.up[i] * s * (1.0F + gate * (1.0F - s));
      dup[i] = piece.dy[i] * gate * s;
    }
    store(dgate_up.at(row, col), dgate);
    store(dgate_up.at(row, cols + col), dup);
  }
};

/// Whether gate and up can be accessed in whole pieces: up begins behind the gate.
template <int width>
bool halves_in_pieces(const ConstTensorView& gate_up) {
  return rows_in_pieces_of(width, gate_up) && gate_up.cols() / 2 % width == 0;
}

}  // namespace

void CudaOps::swiglu_forward(Stream& stream, ConstTensorView gate_up, TensorView y) {
  check_swiglu_forward(gate_up, y);
  with_element(y.dtype(), [&]<class T>(std::type_identity<T>) {
    constexpr int width = SwigluForward<T>::width;
    launch_elementwise(cuda_stream(stream), SwigluForward<T>{rows_of<T>(gate_up), rows_of<T>(y), y.cols()},
                       MatrixSize{y.rows(), y.cols()}, halves_in_pieces<width>(gate_up) && rows_in_pieces_of(width, y));
  });
}

void CudaOps::swiglu_backward(Stream& stream, ConstTensorView gate_up, ConstTensorView dy, TensorView dgate_up) {
  check_swiglu_backward(gate_up, dy, dgate_up);
  with_element(dy.dtype(), [&]<class T>(std::type_identity<T>) {
    constexpr int width = SwigluBackward<T>::width;
    const bool aligned =
        halves_in_pieces<width>(gate_up) && rows_in_pieces_of(width, dy) && halves_in_pieces<width>(dgate_up);
    launch_elementwise(cuda_stream(stream),
                       SwigluBackward<T>{rows_of<T>(gate_up), rows_of<T>(dy), rows_of<T>(dgate_up), dy.cols()},
                       MatrixSize{dy.rows(), dy.cols()}, aligned);
  });
}

}  // namespace skrull
