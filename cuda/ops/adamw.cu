// The optimizer's update.

#include <cmath>

#include "device/cuda_stream.h"
#include "kernel/elementwise.h"
#include "kernel/vector_access.h"
#include "ops/cuda_ops.h"
#include "skrull/device/operation_operands.h"

namespace skrull {

namespace {

/// Coefficients, in fp32 as the elements: computed in fp64, in the order of torch.optim.AdamW.
struct AdamWFactors {
  float decay, step_size, root_correction, new_share1, beta2, new_share2, epsilon, gradient_scale;

  explicit AdamWFactors(const AdamW& a) {
    const auto steps = static_cast<double>(a.step);
    decay = static_cast<float>(1.0 - a.learning_rate * a.weight_decay);
    step_size = static_cast<float>(a.learning_rate / (1.0 - std::pow(a.beta1, steps)));
    root_correction = static_cast<float>(std::sqrt(1.0 - std::pow(a.beta2, steps)));
    new_share1 = static_cast<float>(1.0 - a.beta1);
    beta2 = static_cast<float>(a.beta2);
    new_share2 = static_cast<float>(1.0 - a.beta2);
    epsilon = static_cast<float>(a.epsilon);
    gradient_scale = static_cast<float>(a.gradient_scale);
  }
};

/// Vectors: the row is always 0. T: of the copy, which may be null.
template <class T>
struct AdamWStep {
  static constexpr int width = 4;
  template <int n>
  struct Piece {
    float parameter[n], gradient[n], first[n], second[n];
  };

  AdamWFactors factors;
  float* parameter;
  const float* gradient;
  float* first;
  float* second;
  T* copy;

  template <int n>
  __device__ Piece<n> read(std::int64_t /*row*/, std::int64_t i) const {
    Piece<n> piece;
    load<n>(parameter + i, piece.parameter);
    load<n>(gradient + i, piece.gradient);
    load<n>(first + i, piece.first);
    load<n>(second + i, piece.second);
    return piece;
  }
  template <int n>
  __device__ void write(std::int64_t /*row*/, std::int64_t i, Piece<n> piece) const {
    const AdamWFactors& f = factors;
#pragma unroll
    for (int e = 0; e < n; ++e) {
      const float g = piece.gradient[e] * f.gradient_scale;
      const float m = piece.first[e] + f.new_share1 * (g - piece.first[e]);
      const float v = f.beta2 * piece.second[e] + f.new_share2 * g * g;
      piece.first[e] = m;
      piece.second[e] = v;
      piece.parameter[e] =
          f.decay * piece.parameter[e] - f.step_size * (m / (sqrtf(v) / f.root_correction + f.epsilon));
    }
    store(parameter + i, piece.parameter);
    store(first + i, piece.first);
    store(second + i, piece.second);
    if (copy != nullptr) store(copy + i, piece.parameter);
  }
};

}  // namespace

void CudaOps::adamw(Stream& stream, const AdamW& a) {
  check_adamw(a);
  const auto data = [](const TensorView& view) { return static_cast<float*>(view.data()); };
  with_element(a.compute_copy ? a.compute_copy.dtype() : DType::float32, [&]<class T>(std::type_identity<T>) {
    const AdamWStep<T> step{AdamWFactors(a),      data(a.parameter),     static_cast<const float*>(a.gradient.data()),
                            data(a.first_moment), data(a.second_moment), static_cast<T*>(a.compute_copy.data())};
    bool aligned = !a.compute_copy || rows_in_pieces_of(step.width, a.compute_copy);
    for (const ConstTensorView& view : {ConstTensorView(a.parameter), a.gradient, ConstTensorView(a.first_moment),
                                        ConstTensorView(a.second_moment)}) {
      aligned = aligned && rows_in_pieces_of(step.width, view);
    }
    launch_elementwise(cuda_stream(stream), step, MatrixSize{1, a.parameter.cols()}, aligned);
  });
}

}  // namespace skrull
