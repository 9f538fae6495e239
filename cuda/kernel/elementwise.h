#pragma once
// Operations that compute each element of a matrix from elements at the same place. An operation says how to read and
// write a piece of neighbouring elements:
//
//   struct Scale {
//     static constexpr int width = 4;                       elements of a whole piece
//     template <int n> struct Piece { float x[n]; };        what is kept between
//     template <int n> __device__ Piece<n> read(std::int64_t row, std::int64_t col) const;
//     template <int n> __device__ void write(std::int64_t row, std::int64_t col, Piece<n> piece) const;
//   };
//
// n is `width`, or 1 where rows are not aligned. A thread reads all its pieces before it writes one, so that enough
// bytes are on their way; no element is read by another thread than the one that writes it.

#include <cstdint>

#include "kernel/kernel.h"
#include "kernel/rows.h"
#include "skrull/core/narrow.h"

namespace skrull {

namespace elementwise {

constexpr int threads = 256;
constexpr int pieces_of_thread = 2;

/// Pieces of n elements of a matrix, numbered row by row, from column `first_col` on.
struct Pieces {
  std::int64_t first_col;
  std::int64_t in_row;
  std::int64_t count;
};

template <class Operation, int n>
__global__ void __launch_bounds__(threads) kernel(const Operation operation, const Pieces pieces) {
  typename Operation::template Piece<n> held[pieces_of_thread];
  std::int64_t row[pieces_of_thread];
  std::int64_t col[pieces_of_thread];
  const std::int64_t first = std::int64_t{blockIdx.x} * (threads * pieces_of_thread) + threadIdx.x;
#pragma unroll
  for (int i = 0; i < pieces_of_thread; ++i) {
    const std::int64_t piece = first + i * threads;
    if (piece >= pieces.count) break;
    row[i] = pieces.count == pieces.in_row ? 0 : piece / pieces.in_row;
    col[i] = pieces.first_col + (piece - row[i] * pieces.in_row) * n;
    held[i] = operation.template read<n>(row[i], col[i]);
  }
#pragma unroll
  for (int i = 0; i < pieces_of_thread; ++i) {
    if (first + i * threads >= pieces.count) break;
    operation.template write<n>(row[i], col[i], held[i]);
  }
}

template <int n, class Operation>
void launch_pieces(cudaStream_t stream, const Operation& operation, std::int64_t rows, std::int64_t first_col,
                   std::int64_t cols) {
  const Pieces pieces{first_col, cols / n, rows * (cols / n)};
  constexpr std::int64_t pieces_of_block = threads * pieces_of_thread;
  const auto blocks = narrow<std::int32_t>((pieces.count + pieces_of_block - 1) / pieces_of_block);
  launch(kernel<Operation, n>, static_cast<unsigned>(blocks), dim3(threads), 0, stream, operation, pieces);
}

}  // namespace elementwise

/// Runs `operation` on every element of a matrix. `aligned`: every operand's rows lie so that whole pieces can be
/// accessed from column 0 on (rows_in_pieces_of()).
template <class Operation>
void launch_elementwise(cudaStream_t stream, const Operation& operation, MatrixSize size, bool aligned) {
  constexpr int width = Operation::width;
  const std::int64_t ragged = size.cols % width;
  if (!aligned || (ragged != 0 && size.rows > 1)) {
    elementwise::launch_pieces<1>(stream, operation, size.rows, 0, size.cols);
    return;
  }
  elementwise::launch_pieces<width>(stream, operation, size.rows, 0, size.cols - ragged);
  elementwise::launch_pieces<1>(stream, operation, size.rows, size.cols - ragged, ragged);
}

}  // namespace skrull
