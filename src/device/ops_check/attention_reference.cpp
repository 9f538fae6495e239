#include "ops_check/attention_reference.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace skrull {

namespace {

ReferenceSums zero_sums(std::size_t count) {
  return {std::vector<double>(count), std::vector<double>(count)};
}

class Reference {
 public:
  Reference(const AttentionShape& shape, ConstTensorView q, ConstTensorView k, ConstTensorView v, ConstTensorView dout)
      : shape_(shape),
        head_dim_(shape.head_dim),
        q_(values_of(q)),
        k_(values_of(k)),
        v_(values_of(v)),
        dout_(values_of(dout)) {
    result_.out = zero_sums(q_.size());
    result_.dq = zero_sums(q_.size());
    result_.dk = zero_sums(k_.size());
    result_.dv = zero_sums(k_.size());
    const auto rows = static_cast<std::size_t>(q.rows() * shape.num_heads);
    result_.lse.assign(rows, -std::numeric_limits<double>::infinity());
    result_.delta.assign(rows, 0);
  }

  void add(const AttentionSegment& s) {
    for (std::int64_t i = 0; i < s.q_len; ++i) {
      const std::int64_t seen = s.causal ? std::clamp<std::int64_t>(i + s.k_len - s.q_len + 1, 0, s.k_len) : s.k_len;
      if (seen == 0) continue;
      for (std::int64_t head = 0; head < shape_.num_heads; ++head) add_row(s.q_begin + i, head, s.k_begin, seen);
    }
  }

  AttentionReference take() { return std::move(result_); }

 private:
  struct Dot {
    double value = 0, size = 0;
  };

  Dot dot(const double* a, const double* b) const {
    Dot result;
    for (std::int64_t c = 0; c < head_dim_; ++c) {
      result.value += a[c] * b[c];
      result.size += std::abs(a[c] * b[c]);
    }
    return result;
  }

  /// into += factor x, where the factor's own terms add up to factor_size.
  void add_scaled(ReferenceSums& into, std::size_t at, double factor, double factor_size, const double* x) const {
    for (std::int64_t c = 0; c < head_dim_; ++c) {
      const auto i = at + static_cast<std::size_t>(c);
      into.values[i] += factor * x[c];
      into.sizes[i] += factor_size * std::abs(x[c]);
    }
  }

  void add_row(std::int64_t query, std::int64_t head, std::int64_t first_key, std::int64_t keys) {
    const std::int64_t group = shape_.num_heads / shape_.num_kv_heads;
    const auto row = static_cast<std::size_t>((query * shape_.num_heads + head) * head_dim_);
    const auto key_row = [&](std::int64_t j) {
      return static_cast<std::size_t>(((first_key + j) * shape_.num_kv_heads + head / group) * head_dim_);
    };
    const double scale = shape_.scale;
    p_.clear();
    for (std::int64_t j = 0; j < keys; ++j) {
      const Dot score = dot(&q_[row], &k_[key_row(j)]);
      p_.push_back(score.value * scale);
      result_.score_size = std::max(result_.score_size, score.size * std::abs(scale));
    }
    const double largest = *std::max_element(p_.begin(), p_.end());
    double sum = 0;
    for (double& x : p_) sum += x = std::exp(x - largest);
    for (double& x : p_) x /= sum;
    const std::size_t index = row / static_cast<std::size_t>(head_dim_);
    result_.lse[index] = largest + std::log(sum);
    for (std::int64_t j = 0; j < keys; ++j) {
      const double weight = p_[static_cast<std::size_t>(j)];
      add_scaled(result_.out, row, weight, weight, &v_[key_row(j)]);
    }
    const double* dout_row = &dout_[row];
    const Dot delta = dot(&result_.out.values[row], dout_row);
    result_.delta[index] = delta.value;
    for (std::int64_t j = 0; j < keys; ++j) {
      const std::size_t key = key_row(j);
      const double weight = p_[static_cast<std::size_t>(j)];
      const Dot dweight = dot(dout_row, &v_[key]);
      const double dscore = weight * (dweight.value - delta.value) * scale;
      const double dscore_size = weight * (dweight.size + delta.size) * std::abs(scale);
      add_scaled(result_.dv, key, weight, weight, dout_row);
      add_scaled(result_.dq, row, dscore, dscore_size, &k_[key]);
      add_scaled(result_.dk, key, dscore, dscore_size, &q_[row]);
    }
  }

  AttentionShape shape_;
  std::int64_t head_dim_;
  std::vector<double> q_, k_, v_, dout_;
  std::vector<double> p_;
  AttentionReference result_;
};

}  // namespace

double value_at(ConstTensorView x, std::int64_t row, std::int64_t col) {
  const std::int64_t i = row * x.row_stride() + col;
  return x.dtype() == DType::bfloat16 ? static_cast<float>(x.as<bfloat16>()[i]) : x.as<float>()[i];
}

std::vector<double> values_of(ConstTensorView x) {
  std::vector<double> result;
  result.reserve(static_cast<std::size_t>(x.elements()));
  for (std::int64_t row = 0; row < x.rows(); ++row) {
    for (std::int64_t col = 0; col < x.cols(); ++col) result.push_back(value_at(x, row, col));
  }
  return result;
}

AttentionReference attention_reference(const AttentionShape& shape, std::span<const AttentionSegment> segments,
                                       ConstTensorView q, ConstTensorView k, ConstTensorView v, ConstTensorView dout) {
  Reference reference(shape, q, k, v, dout);
  for (const AttentionSegment& segment : segments) reference.add(segment);
  return reference.take();
}

}  // namespace skrull
