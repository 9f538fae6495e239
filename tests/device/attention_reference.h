#pragma once
// Attention in fp64, straight from the definition, and random problems for it.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

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

struct AttentionReference {
  std::vector<double> out, lse, dq, dk, dv;
};

/// Value of element (row, col) of a view.
inline double value_at(ConstTensorView x, std::int64_t row, std::int64_t col) {
  const std::int64_t i = row * x.row_stride() + col;
  return x.dtype() == DType::bfloat16 ? static_cast<float>(x.as<bfloat16>()[i]) : x.as<float>()[i];
}

/// All elements of a view, row by row.
inline std::vector<double> values_of(ConstTensorView x) {
  std::vector<double> result;
  result.reserve(static_cast<std::size_t>(x.elements()));
  for (std::int64_t row = 0; row < x.rows(); ++row)
    for (std::int64_t col = 0; col < x.cols(); ++col) result.push_back(value_at(x, row, col));
  return result;
}

/// Softmax attention and its gradient for every row, key by key: o = sum p v, p = softmax(scale q.k);
/// dv = p do, ds = p (do.v - do.o), dq = scale ds k, dk = scale ds q.
inline AttentionReference attention_reference(const AttentionShape& shape, std::span<const AttentionSegment> segments,
                                              ConstTensorView q, ConstTensorView k, ConstTensorView v,
                                              ConstTensorView dout) {
  const std::int64_t d = shape.head_dim;
  const std::int64_t group = shape.num_heads / shape.num_kv_heads;
  const std::vector<double> qs = values_of(q);
  const std::vector<double> ks = values_of(k);
  const std::vector<double> vs = values_of(v);
  const std::vector<double> douts = values_of(dout);
  AttentionReference r;
  r.out.assign(qs.size(), 0);
  r.dq.assign(qs.size(), 0);
  r.dk.assign(ks.size(), 0);
  r.dv.assign(ks.size(), 0);
  r.lse.assign(static_cast<std::size_t>(q.rows() * shape.num_heads), -std::numeric_limits<double>::infinity());
  const auto dot = [d](const double* a, const double* b) {
    double sum = 0;
    for (std::int64_t c = 0; c < d; ++c) sum += a[c] * b[c];
    return sum;
  };
  const auto add = [d](double* into, double factor, const double* x) {
    for (std::int64_t c = 0; c < d; ++c) into[c] += factor * x[c];
  };
  std::vector<double> p;
  for (const AttentionSegment& s : segments) {
    for (std::int64_t i = 0; i < s.q_len; ++i) {
      const std::int64_t seen = s.causal ? std::clamp<std::int64_t>(i + s.k_len - s.q_len + 1, 0, s.k_len) : s.k_len;
      if (seen == 0) continue;
      for (std::int64_t h = 0; h < shape.num_heads; ++h) {
        const std::int64_t row = ((s.q_begin + i) * shape.num_heads + h) * d;
        const auto key_row = [&](std::int64_t j) { return ((s.k_begin + j) * shape.num_kv_heads + h / group) * d; };
        p.clear();
        for (std::int64_t j = 0; j < seen; ++j)
          p.push_back(dot(&qs[static_cast<std::size_t>(row)], &ks[static_cast<std::size_t>(key_row(j))]) *
                      double{shape.scale});
        const double largest = *std::max_element(p.begin(), p.end());
        double sum = 0;
        for (double& x : p) sum += x = std::exp(x - largest);
        for (double& x : p) x /= sum;
        r.lse[static_cast<std::size_t>(row / d)] = largest + std::log(sum);
        double* out = &r.out[static_cast<std::size_t>(row)];
        for (std::int64_t j = 0; j < seen; ++j)
          add(out, p[static_cast<std::size_t>(j)], &vs[static_cast<std::size_t>(key_row(j))]);
        const double* dout_row = &douts[static_cast<std::size_t>(row)];
        const double delta = dot(out, dout_row);
        for (std::int64_t j = 0; j < seen; ++j) {
          const auto key = static_cast<std::size_t>(key_row(j));
          const double weight = p[static_cast<std::size_t>(j)];
          const double dscore = weight * (dot(dout_row, &vs[key]) - delta) * double{shape.scale};
          add(&r.dv[key], weight, dout_row);
          add(&r.dq[static_cast<std::size_t>(row)], dscore, &ks[key]);
          add(&r.dk[key], dscore, &qs[static_cast<std::size_t>(row)]);
        }
      }
    }
  }
  return r;
}

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

}  // namespace skrull::test
