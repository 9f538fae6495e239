// Cross-entropy of rows of logits, with its gradient: memory is read once for the sum and once for the gradient.

#include <cmath>
#include <limits>

#include "cpu/cpu_ops.h"
#include "cpu/kernel.h"
#include "skrull/device/operation_operands.h"

namespace skrull {

namespace {

using simd::Floats;

/// sum of exp(x - maximum), and the maximum.
struct ExponentialSum {
  float maximum = -std::numeric_limits<float>::infinity();
  double sum = 0;
};

float maximum_of(const float* x, std::int64_t count) {
  Floats largest = simd::broadcast(-std::numeric_limits<float>::infinity());
  std::int64_t i = 0;
  for (; i + simd::lanes <= count; i += simd::lanes) largest = simd::max(largest, simd::load(x + i));
  float result = simd::maximum(largest);
  for (; i < count; ++i) result = std::max(result, x[i]);
  return result;
}

float sum_of_exponentials(const float* x, std::int64_t count, float shift) {
  Floats sum{};
  std::int64_t i = 0;
  for (; i + simd::lanes <= count; i += simd::lanes) sum += simd::exp(simd::load(x + i) - shift);
  float result = simd::sum(sum);
  for (; i < count; ++i) result += std::exp(x[i] - shift);
  return result;
}

/// Each block is read twice, the second time from the cache; the sum so far is rescaled when the maximum grows.
ExponentialSum exponential_sum(const float* x, std::int64_t count) {
  constexpr std::int64_t block = 2048;
  ExponentialSum result;
  for (std::int64_t begin = 0; begin < count; begin += block) {
    const std::int64_t size = std::min(count - begin, block);
    const float maximum = std::max(result.maximum, maximum_of(x + begin, size));
    if (maximum > result.maximum) {
      result.sum *= std::exp(static_cast<double>(result.maximum) - static_cast<double>(maximum));
      result.maximum = maximum;
    }
    // Minus infinity so far: a shift by it would make NaN of terms that are 0.
    const float shift = std::isinf(maximum) && maximum < 0 ? 0.0F : maximum;
    result.sum += static_cast<double>(sum_of_exponentials(x + begin, size, shift));
  }
  return result;
}

/// gradient = factor exp(x - maximum); may be x itself.
template <class T>
void scaled_exponentials(const float* x, std::int64_t count, float maximum, float factor, T* gradient) {
  for_each_vector(count, [&](std::int64_t i, auto size) {
    simd::store_first(gradient + i, simd::exp(simd::load_first(x + i, size) - maximum) * factor, size);
  });
}

/// The loss of one supervised row and, where `gradient` is not null, its gradient.
template <class T>
float row_loss(const float* logits, std::int64_t vocabulary, std::int64_t label, float weight, T* gradient) {
  const ExponentialSum total = exponential_sum(logits, vocabulary);
  const float at_label = logits[label];
  if (gradient != nullptr) {
    const auto factor = static_cast<float>(static_cast<double>(weight) / total.sum);
    scaled_exponentials(logits, vocabulary, total.maximum, factor, gradient);
    gradient[label] = static_cast<T>(std::exp(at_label - total.maximum) * factor - weight);
  }
  return static_cast<float>(static_cast<double>(total.maximum) - static_cast<double>(at_label) + std::log(total.sum));
}

}  // namespace

void CpuOps::cross_entropy(Stream& stream, const CrossEntropy& cross_entropy) {
  check_cross_entropy(cross_entropy);
  const CrossEntropy c = cross_entropy;
  const std::int64_t tokens = c.logits.rows();
  const std::int64_t vocabulary = c.logits.cols();
  const bool has_gradient = static_cast<bool>(c.gradient);
  run(stream, [=] {
    const auto* labels = static_cast<const std::int32_t*>(c.labels.data());
    float* losses = row_of<float>(c.losses, 0);
    with_dtype(has_gradient ? c.gradient.dtype() : DType::float32, [&]<class T>(std::type_identity<T>) {
      parallel_ranges(tokens, 8 * vocabulary, [&](std::int64_t first, std::int64_t last) {
        for (std::int64_t t = first; t < last; ++t) {
          T* gradient = has_gradient ? row_of<T>(c.gradient, t) : nullptr;
          if (labels[t] >= 0) {
            const float weight = has_gradient ? row_of<float>(c.weights, 0)[t] : 0.0F;
            losses[t] = row_loss(row_of<float>(c.logits, t), vocabulary, labels[t], weight, gradient);
          } else {
            losses[t] = 0;
            if (has_gradient) std::fill(gradient, gradient + vocabulary, T(0.0F));
          }
        }
      });
    });
  });
}

}  // namespace skrull
