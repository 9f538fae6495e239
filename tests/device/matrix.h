#pragma once
// Host matrices for the tests of operations: filled with seeded values, read back in fp64, and with guard elements
// between and behind the rows that nobody may touch.

#include <cmath>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "skrull/core/rng.h"
#include "skrull/core/tensor.h"
#include "skrull/device/device.h"
#include "skrull/device/ops.h"
#include "support/catch.h"

namespace skrull::test {

class Matrix {
 public:
  /// `padding` elements lie between the end of a row and the next one.
  Matrix(DType dtype, std::int64_t rows, std::int64_t cols, std::int64_t padding = 0)
      : dtype_(dtype),
        rows_(rows),
        cols_(cols),
        stride_(cols + padding),
        bytes_(static_cast<std::size_t>((rows * stride_ + 1) * size_of(dtype)), guard) {
    fill([](std::int64_t, std::int64_t) { return 0.0; });
  }

  /// Normal values of a seeded stream, rounded to the dtype.
  static Matrix random(DType dtype, std::int64_t rows, std::int64_t cols, const std::string& name, double scale = 1.0,
                       std::int64_t padding = 0) {
    Matrix matrix(dtype, rows, cols, padding);
    Rng rng(7, name);
    matrix.fill([&](std::int64_t, std::int64_t) { return scale * rng.normal(); });
    return matrix;
  }
  static Matrix of(DType dtype, std::vector<double> row) {
    Matrix matrix(dtype, 1, static_cast<std::int64_t>(row.size()));
    matrix.fill([&](std::int64_t, std::int64_t j) { return row[static_cast<std::size_t>(j)]; });
    return matrix;
  }

  TensorView view() { return {bytes_.data(), dtype_, rows_, cols_, stride_}; }
  ConstTensorView view() const { return {bytes_.data(), dtype_, rows_, cols_, stride_}; }
  std::int64_t rows() const { return rows_; }
  std::int64_t cols() const { return cols_; }
  DType dtype() const { return dtype_; }

  double operator()(std::int64_t row, std::int64_t col) const {
    const char* at = bytes_.data() + (row * stride_ + col) * size_of(dtype_);
    switch (dtype_) {
      case DType::float32:
        return read<float>(at);
      case DType::bfloat16:
        return static_cast<float>(read<bfloat16>(at));
      case DType::float64:
        return read<double>(at);
      case DType::int32:
        return read<std::int32_t>(at);
      default:
        FAIL("no test matrices of " << name_of(dtype_));
        return 0;
    }
  }

  void set(std::int64_t row, std::int64_t col, double value) {
    char* at = bytes_.data() + (row * stride_ + col) * size_of(dtype_);
    switch (dtype_) {
      case DType::float32:
        return write(at, static_cast<float>(value));
      case DType::bfloat16:
        return write(at, bfloat16(static_cast<float>(value)));
      case DType::float64:
        return write(at, value);
      case DType::int32:
        return write(at, static_cast<std::int32_t>(value));
      default:
        FAIL("no test matrices of " << name_of(dtype_));
    }
  }

  void fill(const std::function<double(std::int64_t, std::int64_t)>& value) {
    for (std::int64_t i = 0; i < rows_; ++i) {
      for (std::int64_t j = 0; j < cols_; ++j) set(i, j, value(i, j));
    }
  }

  /// Whether the elements between and behind the rows are as they were made.
  bool guards_intact() const {
    const auto size = static_cast<std::size_t>(size_of(dtype_));
    for (std::int64_t i = 0; i < rows_; ++i) {
      const auto end = static_cast<std::size_t>(i * stride_ + cols_) * size;
      const auto next = static_cast<std::size_t>((i + 1) * stride_) * size;
      for (std::size_t at = end; at < next; ++at) {
        if (bytes_[at] != guard) return false;
      }
    }
    for (std::size_t at = static_cast<std::size_t>(rows_ * stride_) * size; at < bytes_.size(); ++at) {
      if (bytes_[at] != guard) return false;
    }
    return true;
  }

  bool operator==(const Matrix& other) const { return bytes_ == other.bytes_; }

 private:
  static constexpr char guard = 0x7B;

  template <class T>
  static T read(const char* at) {
    T value;
    std::memcpy(static_cast<void*>(&value), at, sizeof(T));
    return value;
  }
  template <class T>
  static void write(char* at, T value) {
    std::memcpy(at, static_cast<const void*>(&value), sizeof(T));
  }

  DType dtype_;
  std::int64_t rows_, cols_, stride_;
  std::vector<char> bytes_;
};

/// |value - expected| <= tolerance x max(scale, |expected|) for every element, where a bfloat16 result may also be off
/// by its own rounding (2^-8). NaN fails.
inline void check_close(const Matrix& value, const std::function<double(std::int64_t, std::int64_t)>& expected,
                        double tolerance, double scale = 1.0) {
  const double rounding = value.dtype() == DType::bfloat16 ? 0x1p-8 : 0.0;
  for (std::int64_t i = 0; i < value.rows(); ++i) {
    for (std::int64_t j = 0; j < value.cols(); ++j) {
      const double want = expected(i, j);
      const double got = value(i, j);
      const double allowed = tolerance * std::max(scale, std::abs(want)) + rounding * std::abs(want);
      if (!(std::abs(got - want) <= allowed)) {
        FAIL("element (" << i << ", " << j << ") is " << got << ", expected " << want << " within " << allowed);
      }
    }
  }
  CHECK(value.guards_intact());
}

/// Devices of one and of two threads, made once.
inline Device& device_with_threads(int threads) {
  static const std::unique_ptr<Device> one = make_cpu_device(1);
  static const std::unique_ptr<Device> two = make_cpu_device(2);
  return threads == 1 ? *one : *two;
}

}  // namespace skrull::test
