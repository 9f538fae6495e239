#pragma once
// Matrix products by cuBLASLt. An algorithm is chosen once for each kind of product and kept.

#include <cublasLt.h>

#include <compare>
#include <cstdint>

#include "ops/cuda_ops.h"
#include "skrull/core/recently_used.h"
#include "skrull/device/gemm_sizes.h"

namespace skrull {

/// What the choice of an algorithm depends on; leading dimensions in elements, alignments in bytes.
struct CudaGemmKey {
  std::int64_t m, n, k;
  std::int64_t lda, ldb, ldc;
  DType dtype, c_dtype;
  bool transpose_a, transpose_b, bias;
  std::uint32_t a_alignment, b_alignment, c_alignment;
  auto operator<=>(const CudaGemmKey&) const = default;  // NOLINT(modernize-use-nullptr): no pointer here
};

class CudaGemm {
 public:
  /// `scratch`, the algorithms' workspace, must outlive this.
  explicit CudaGemm(CudaScratch& scratch);
  ~CudaGemm();
  CudaGemm(const CudaGemm&) = delete;
  CudaGemm& operator=(const CudaGemm&) = delete;

  /// C = op(A) op(B) + beta C (+ bias on every row, of C's dtype then), sums in fp32, without TF32. No size is 0.
  void run(Stream& stream, const Gemm& gemm, const GemmSizes& sizes, float beta);

 private:
  struct Plan;

  cublasLtMatmulAlgo_t choose(const CudaGemmKey& key, const Plan& plan) const;

  CudaScratch& scratch_;
  cublasLtHandle_t handle_ = nullptr;
  RecentlyUsed<CudaGemmKey, cublasLtMatmulAlgo_t> algorithms_;
};

}  // namespace skrull
