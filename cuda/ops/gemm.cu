// Matrix products: cuBLASLt's (cuda_gemm.h), and what it doesn't do.

#include <algorithm>

#include "device/cuda_stream.h"
#include "kernel/kernel.h"
#include "ops/cuda_gemm.h"
#include "ops/cuda_ops.h"
#include "skrull/core/error.h"
#include "skrull/device/gemm_sizes.h"

namespace skrull {
namespace {

constexpr int threads = 256;

/// c[i,j] = c[i,j] or 0 + bias[j] or 0. C and B are float or bf16.
template <class C, class B>
__global__ void __launch_bounds__(threads)
    begin_rows(C* c, std::int64_t stride, std::int64_t rows, std::int64_t cols, const B* bias, bool keep) {
  const std::int64_t count = rows * cols;
  const auto step = static_cast<std::int64_t>(gridDim.x) * threads;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * threads + threadIdx.x; i < count; i += step) {
    const std::int64_t column = i % cols;
    C& element = c[i / cols * stride + column];
    float value = keep ? static_cast<float>(element) : 0.0F;
    if (bias != nullptr) value += static_cast<float>(bias[column]);
    element = static_cast<C>(value);
  }
}

template <class C, class B>
void begin_rows_of(Stream& stream, const Gemm& g) {
  constexpr std::int64_t most_blocks = 4096;
  const auto blocks = static_cast<unsigned>(std::min((g.c.elements() + threads - 1) / threads, most_blocks));
  launch(begin_rows<C, B>, dim3(blocks), dim3(threads), 0, cuda_stream(stream), static_cast<C*>(g.c.data()),
         g.c.row_stride(), g.c.rows(), g.c.cols(), static_cast<const B*>(g.bias.data()), g.accumulate);
}

/// C as a product without terms leaves it.
void begin_with_bias(Stream& stream, const Gemm& g) {
  if (g.a.dtype() == DType::float32) return begin_rows_of<float, float>(stream, g);
  if (g.c.dtype() == DType::float32) return begin_rows_of<float, bf16>(stream, g);
  begin_rows_of<bf16, bf16>(stream, g);
}

/// cuBLASLt adds a bias of C's dtype, and may read it 16 bytes at a time.
bool can_add_bias(const Gemm& g) {
  return g.bias.dtype() == g.c.dtype() && reinterpret_cast<std::uintptr_t>(g.bias.data()) % 16 == 0;
}

}  // namespace

void CudaOps::gemm(Stream& stream, const Gemm& gemm) {
  const GemmSizes sizes = check_gemm(gemm);
  if (sizes.m == 0 || sizes.n == 0) return;
  if (sizes.k == 0) return begin_with_bias(stream, gemm);
  require(gemm_ != nullptr, "these operations were made without products");
  if (!gemm.bias || can_add_bias(gemm)) {
    gemm_->run(stream, gemm, sizes, gemm.accumulate ? 1.0F : 0.0F);
    return;
  }
  begin_with_bias(stream, gemm);
  Gemm without_bias = gemm;
  without_bias.bias = {};
  gemm_->run(stream, without_bias, sizes, 1.0F);
}

}  // namespace skrull
