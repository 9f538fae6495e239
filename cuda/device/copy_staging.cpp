#include "device/copy_staging.h"

#include <algorithm>
#include <cstring>

#include "device/cuda_check.h"

namespace skrull {
namespace {

/// A matrix of bytes on the device and the same one without gaps on the host.
struct ByteMatrix {
  std::int64_t rows = 0;
  std::int64_t width = 0;   ///< of a row
  std::int64_t stride = 0;  ///< between rows on the device
};

ByteMatrix bytes_of(const ConstTensorView& view) {
  const std::int64_t element = size_of(view.dtype());
  if (view.contiguous()) return {1, view.elements() * element, view.elements() * element};
  return {view.rows(), view.cols() * element, view.row_stride() * element};
}

/// Calls block(row, rows, column, columns) for pieces of the matrix of at most `most` bytes: whole rows where one fits.
template <class Block>
void for_blocks(const ByteMatrix& matrix, std::int64_t most, const Block& block) {
  const std::int64_t columns = std::min(matrix.width, most);
  if (columns == 0) return;
  const std::int64_t rows = columns < matrix.width ? 1 : std::max<std::int64_t>(1, most / columns);
  for (std::int64_t row = 0; row < matrix.rows; row += rows) {
    for (std::int64_t column = 0; column < matrix.width; column += columns) {
      block(row, std::min(rows, matrix.rows - row), column, std::min(columns, matrix.width - column));
    }
  }
}

/// Which side lies on the device, CUDA knows by their addresses: what is kept in pinned memory may be either.
void copy_block(char* target, std::int64_t target_stride, const char* source, std::int64_t source_stride,
                std::int64_t rows, std::int64_t columns, cudaStream_t stream) {
  const auto width = static_cast<std::size_t>(columns);
  if (rows == 1) {
    SKRULL_CUDA_CHECK(cudaMemcpyAsync(target, source, width, cudaMemcpyDefault, stream));
  } else {
    SKRULL_CUDA_CHECK(cudaMemcpy2DAsync(target, static_cast<std::size_t>(target_stride), source,
                                        static_cast<std::size_t>(source_stride), width, static_cast<std::size_t>(rows),
                                        cudaMemcpyDefault, stream));
  }
}

}  // namespace

char* CopyStaging::reserve(std::int64_t bytes) {
  constexpr std::int64_t alignment = 256;
  if (ring_[current_].used + bytes > piece_bytes_) {
    current_ = (current_ + 1) % ring_.size();
    for (const auto& [stream, copy] : ring_[current_].last_copies) copy.synchronize();
    ring_[current_].last_copies.clear();
    ring_[current_].used = 0;
  }
  Piece& piece = ring_[current_];
  if (piece.memory.bytes() == 0) piece.memory = PinnedMemory(piece_bytes_);
  char* room = piece.memory.data() + piece.used;
  piece.used += (bytes + alignment - 1) / alignment * alignment;
  return room;
}

void copy_from_pinned(CudaStream& stream, TensorView target, const void* host) {
  const ByteMatrix matrix = bytes_of(target);
  if (target.empty()) return;
  copy_block(static_cast<char*>(target.data()), matrix.stride, static_cast<const char*>(host), matrix.width,
             matrix.rows, matrix.width, stream.handle());
}

void copy_to_pinned(CudaStream& stream, void* host, ConstTensorView source) {
  const ByteMatrix matrix = bytes_of(source);
  if (source.empty()) return;
  copy_block(static_cast<char*>(host), matrix.width, static_cast<const char*>(source.data()), matrix.stride,
             matrix.rows, matrix.width, stream.handle());
}

void CopyStaging::to_device(CudaStream& stream, TensorView target, const void* host, HostRead read) {
  const ByteMatrix matrix = bytes_of(target);
  auto* to = static_cast<char*>(target.data());
  const auto* from = static_cast<const char*>(host);
  for_blocks(matrix, piece_bytes_, [&](std::int64_t row, std::int64_t rows, std::int64_t column, std::int64_t columns) {
    char* staged = reserve(rows * columns);
    const auto fill = [staged, source = from + row * matrix.width + column,
                       bytes = static_cast<std::size_t>(rows * columns)] { std::memcpy(staged, source, bytes); };
    if (read == HostRead::at_once) {
      fill();
    } else {
      stream.enqueue(fill);
    }
    copy_block(to + row * matrix.stride + column, matrix.stride, staged, columns, rows, columns, stream.handle());
    queued(stream);
  });
}

void CopyStaging::to_host(CudaStream& stream, void* host, ConstTensorView source) {
  const ByteMatrix matrix = bytes_of(source);
  auto* to = static_cast<char*>(host);
  const auto* from = static_cast<const char*>(source.data());
  for_blocks(matrix, piece_bytes_, [&](std::int64_t row, std::int64_t rows, std::int64_t column, std::int64_t columns) {
    char* staged = reserve(rows * columns);
    copy_block(staged, columns, from + row * matrix.stride + column, matrix.stride, rows, columns, stream.handle());
    stream.enqueue([target = to + row * matrix.width + column, staged,
                    bytes = static_cast<std::size_t>(rows * columns)] { std::memcpy(target, staged, bytes); });
    queued(stream);
  });
}

}  // namespace skrull
