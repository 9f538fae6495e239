// Rotary position embedding (Su et al. 2021), halves paired as in Hugging Face's Qwen2.

#include "device/cuda_stream.h"
#include "kernel/elementwise.h"
#include "kernel/vector_access.h"
#include "ops/cuda_ops.h"
#include "skrull/device/operation_operands.h"

namespace skrull {

namespace {

/// cos and sin of an angle in fp64. Columns are those of the cosines.
struct RopeTable {
  static constexpr int width = 1;
  template <int n>
  struct Piece {
    float cosine, sine;
  };

  const std::int32_t* positions;
  const float* inverse_frequency;
  Rows<float> table;
  std::int64_t half;

  template <int n>
  __device__ Piece<n> read(std::int64_t row, std::int64_t col) const {
    const double angle = static_cast<double>(positions[row]) * static_cast<double>(inverse_frequency[col]);
    double cosine;
    double sine;
    sincos(angle, &sine, &cosine);
    return {static_cast<float>(cosine), static_cast<float>(sine)};
  }
  template <int n>
  __device__ void write(std::int64_t row, std::int64_t col, const Piece<n>& piece) const {
    *table.at(row, col) = piece.cosine;
    *table.at(row, half + col) = piece.sine;
  }
};

/// Columns are numbered through the lower halves of all heads.
template <class T>
struct Rope {
  static constexpr int width = elements_of_16_bytes<T>;
  template <int n>
  struct Piece {
    float lower[n], upper[n];
  };

  Rows<T> x;
  Rows<const float> table;
  int half;
  float direction;  ///< 1, or -1 to turn back

  __device__ T* lower_half(std::int64_t row, std::int64_t col) const {
    const auto column = static_cast<std::uint32_t>(col);
    const auto half_size = static_cast<std::uint32_t>(half);
    return x.at(row, column / half_size * std::int64_t{2} * half_size + column % half_size);
  }

  template <int n>
  __device__ Piece<n> read(std::int64_t row, std::int64_t col) const {
    const T* from = lower_half(row, col);
    Piece<n> piece;
    load(from, piece.lower);
    load(from + half, piece.upper);
    return piece;
  }
  template <int n>
  __device__ void write(std::int64_t row, std::int64_t col, const Piece<n>& piece) const {
    const float* angles = table.at(row, static_cast<std::uint32_t>(col) % static_cast<std::uint32_t>(half));
    float cosine[n];
    float sine[n];
    load(angles, cosine);
    load(angles + half, sine);
    float lower[n];
    float upper[n];
#pragma unroll
    for (int i = 0; i < n; ++i) {
      lower[i] = piece.lower[i] * cosine[i] - direction * piece.upper[i] * sine[i];
      upper[i] = piece.upper[i] * cosine[i] + direction * piece.lower[i] * sine[i];
    }
    T* into = lower_half(row, col);
    store(into, lower);
    store(into + half, upper);
  }
};

}  // namespace

void CudaOps::rope_table(Stream& stream, ConstTensorView positions, ConstTensorView inverse_frequency,
                         TensorView table) {
  check_rope_table(positions, inverse_frequency, table);
  const RopeTable operation{static_cast<const std::int32_t*>(positions.data()),
                            static_cast<const float*>(inverse_frequency.data()), rows_of<float>(table),
                            inverse_frequency.cols()};
  launch_elementwise(cuda_stream(stream), operation, MatrixSize{table.rows(), inverse_frequency.cols()}, true);
}

void CudaOps::rope(Stream& stream, TensorView x, ConstTensorView table, std::int64_t head_dim, bool inverse) {
  check_rope(x, table, head_dim);
  const auto half = narrow<std::int32_t>(head_dim / 2);
  with_element(x.dtype(), [&]<class T>(std::type_identity<T>) {
    constexpr int width = Rope<T>::width;
    const bool aligned = half % width == 0 && rows_in_pieces_of(width, x) && rows_in_pieces_of(width, table);
    launch_elementwise(cuda_stream(stream), Rope<T>{rows_of<T>(x), rows_of<float>(table), half, inverse ? -1.0F : 1.0F},
                       MatrixSize{x.rows(), x.cols() / 2}, aligned);
  });
}

}  // namespace skrull
