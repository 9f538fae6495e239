// Cross-entropy of rows of logits, with its gradient.

#include <cmath>
#include <limits>

#include "cpu/cpu_ops.h"
#include "cpu/kernel.h"

namespace skrull {

namespace {

/// sum of exp(x - maximum), and the maximum.
struct ExponentialSum {
  float maximum = -std::numeric_limits<float>::infinity();
  double sum = 0;
};

/// One pass over memory: each block is summed while it is in the cache, the sum so far is rescaled when the maximum
/// grows.
ExponentialSum exponential_sum(const float* x, std::int64_t count) {
  constexpr std::int64_t block = 2048;
  ExponentialSum result;
  for (std::int64_t begin = 0; begin < count; begin += block) {
    const std::int64_t end = std::min(count, begin + block);
    float maximum = result.maximum;
#pragma omp simd reduction(max : maximum)
    for (std::int64_t i = begin; i < end; ++i) maximum = std::max(maximum, x[i]);
    if (maximum > result.maximum) {
      result.sum *= std::exp(static_cast<double>(result.maximum) - static_cast<double>(maximum));
      result.maximum = maximum;
    }
    float sum = 0;
    for (std::int64_t i = begin; i < end; ++i) sum += std::exp(x[i] - maximum);
    result.sum += static_cast<double>(sum);
  }
  return result;
}

}  // namespace

void CpuOps::cross_entropy(Stream& stream, const CrossEntropy& cross_entropy) {
  const CrossEntropy c = cross_entropy;
  const std::int64_t tokens = c.logits.rows();
  const std::int64_t vocabulary = c.logits.cols();
  const bool has_gradient = static_cast<bool>(c.gradient);
  check_dtype("cross_entropy", "logits", c.logits, DType::float32);
  check_dtype("cross_entropy", "labels", c.labels, DType::int32);
  check_shape("cross_entropy", "labels", c.labels, 1, tokens);
  check_dtype("cross_entropy", "losses", c.losses, DType::float32);
  check_shape("cross_entropy", "losses", c.losses, 1, tokens);
  if (has_gradient) {
    check_dtype("cross_entropy", "weights", c.weights, DType::float32);
    check_shape("cross_entropy", "weights", c.weights, 1, tokens);
    check_computable("cross_entropy", "gradient", c.gradient);
    check_shape("cross_entropy", "gradient", c.gradient, tokens, vocabulary);
  }
  run(stream, [=] {
    const auto* labels = static_cast<const std::int32_t*>(c.labels.data());
    float* losses = row_of<float>(c.losses, 0);
    with_dtype(has_gradient ? c.gradient.dtype() : DType::float32, [&]<class T>(std::type_identity<T>) {
      parallel_ranges(tokens, 8 * vocabulary, [&](std::int64_t first, std::int64_t last) {
        for (std::int64_t t = first; t < last; ++t) {
          const std::int64_t label = labels[t];
          T* gradient = has_gradient ? row_of<T>(c.gradient, t) : nullptr;
          if (label < 0) {
            losses[t] = 0;
            if (has_gradient) std::fill(gradient, gradient + vocabulary, T(0.0F));
            continue;
          }
          const float* logits = row_of<float>(c.logits, t);
          const ExponentialSum total = exponential_sum(logits, vocabulary);
          const double log_sum = std::log(total.sum);
          losses[t] =
              static_cast<float>(static_cast<double>(total.maximum) - static_cast<double>(logits[label]) + log_sum);
          if (!has_gradient) continue;
          const float weight = row_of<float>(c.weights, 0)[t];
          const auto factor = static_cast<float>(static_cast<double>(weight) / total.sum);
          const float at_label = std::exp(logits[label] - total.maximum) * factor - weight;
          for (std::int64_t i = 0; i < vocabulary; ++i) {
            gradient[i] = static_cast<T>(std::exp(logits[i] - total.maximum) * factor);
          }
          gradient[label] = static_cast<T>(at_label);
        }
      });
    });
  });
}

}  // namespace skrull
