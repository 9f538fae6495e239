#pragma once
// Random problems for attention, and how far a result is from the definition's.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "ops_check/attention_reference.h"
#include "skrull/core/rng.h"
#include "skrull/device/ops.h"

namespace skrull::test {

/// A matrix with its own memory in any dtype; `values` are what the memory holds, exactly.
class Matrix {
 public:
  /// Zeros.
  Matrix(std::int64_t rows, std::int64_t cols, DType dtype = DType::float32)
      : rows_(rows), cols_(cols), dtype_(dtype), bytes_(static_cast<std::size_t>(rows * cols * size_of(dtype))) {}

  static Matrix random(std::int64_t rows, std::int64_t cols, DType dtype, std::uint64_t seed, double size = 1) {
    Matrix result(rows, cols, dtype);
    Rng rng(seed, "matrix");
    for (std::int64_t i = 0; i < rows * cols; ++i) result.set(i, static_cast<float>(size * rng.normal()));
    return result;
  }

  std::int64_t rows() const { return rows_; }
  std::int64_t cols() const { return cols_; }
  TensorView view() { return {bytes_.data(), dtype_, rows_, cols_}; }
  ConstTensorView view() const { return {bytes_.data(), dtype_, rows_, cols_}; }
  float at(std::int64_t row, std::int64_t col) const { return get(row * cols_ + col); }
  float get(std::int64_t i) const {
    if (dtype_ == DType::bfloat16) return static_cast<float>(view().as<bfloat16>()[i]);
    return view().as<float>()[i];
  }
  void set(std::int64_t i, float value) {
    if (dtype_ == DType::bfloat16)
      view().as<bfloat16>()[i] = bfloat16(value);
    else
      view().as<float>()[i] = value;
  }
  bool operator==(const Matrix& other) const { return bytes_ == other.bytes_; }

 private:
  std::int64_t rows_, cols_;
  DType dtype_;
  std::vector<char> bytes_;
};

/// Largest difference over the largest magnitude of the reference (at least 0.1: inputs have unit variance), of finite
/// elements; others must agree exactly.
inline double relative_error(ConstTensorView x, const std::vector<double>& reference) {
  double difference = 0;
  double size = 0.1;
  for (std::int64_t row = 0; row < x.rows(); ++row) {
    for (std::int64_t col = 0; col < x.cols(); ++col) {
      const double value = value_at(x, row, col);
      const double expected = reference[static_cast<std::size_t>(row * x.cols() + col)];
      if (value == expected) continue;
      if (!std::isfinite(value) || !std::isfinite(expected)) return std::numeric_limits<double>::infinity();
      difference = std::max(difference, std::abs(value - expected));
      size = std::max(size, std::abs(expected));
    }
  }
  return difference / size;
}

inline double relative_error(ConstTensorView x, const ReferenceSums& reference) {
  return relative_error(x, reference.values);
}

}  // namespace skrull::test
