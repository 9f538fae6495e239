#include "ops/cuda_gemm.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "device/cuda_stream.h"
#include "ops/row_alignment.h"
#include "skrull/core/error.h"

namespace skrull {
namespace {

constexpr std::int64_t most_workspace = std::int64_t{32} << 20;
constexpr std::size_t kept_algorithms = 4096;  // micro-batches differ in their tokens

void check_cublas(cublasStatus_t status, std::string_view call, const CudaGemmKey& key) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  throw_run_failure(
      "{} failed for a product of {} x {} x {} ({} to {}, A {}, B {}, row strides {}, {}, {}): {} (code {})", call,
      key.m, key.n, key.k, name_of(key.dtype), name_of(key.c_dtype), key.transpose_a ? "transposed" : "as it is",
      key.transpose_b ? "transposed" : "as it is", key.lda, key.ldb, key.ldc, cublasLtGetStatusName(status),
      static_cast<int>(status));
}

cudaDataType_t data_type(DType dtype) {
  return dtype == DType::bfloat16 ? CUDA_R_16BF : CUDA_R_32F;
}

CudaGemmKey key_of(const Gemm& g, const GemmSizes& sizes) {
  return {.m = sizes.m,
          .n = sizes.n,
          .k = sizes.k,
          .lda = g.a.row_stride(),
          .ldb = g.b.row_stride(),
          .ldc = g.c.row_stride(),
          .dtype = g.a.dtype(),
          .c_dtype = g.c.dtype(),
          .transpose_a = g.transpose_a,
          .transpose_b = g.transpose_b,
          .bias = static_cast<bool>(g.bias),
          .a_alignment = row_alignment(g.a),
          .b_alignment = row_alignment(g.b),
          .c_alignment = row_alignment(g.c)};
}

/// A matrix layout, or another of cuBLASLt's handles.
template <class Handle, cublasStatus_t (*destroy)(Handle)>
class Owned {
 public:
  Owned() = default;
  ~Owned() {
    if (handle_ != nullptr) destroy(handle_);
  }
  Owned(const Owned&) = delete;
  Owned& operator=(const Owned&) = delete;
  Handle get() const { return handle_; }
  Handle* out() { return &handle_; }

 private:
  Handle handle_ = nullptr;
};
using Layout = Owned<cublasLtMatrixLayout_t, cublasLtMatrixLayoutDestroy>;
using Operation = Owned<cublasLtMatmulDesc_t, cublasLtMatmulDescDestroy>;
using Preference = Owned<cublasLtMatmulPreference_t, cublasLtMatmulPreferenceDestroy>;

}  // namespace

/// The product as cuBLASLt sees it. Row-major matrices are column-major ones transposed: C^T = op(B)^T op(A)^T, so our
/// B comes first.
struct CudaGemm::Plan {
  Operation operation;
  Layout a, b, c;

  Plan(const CudaGemmKey& key, const void* bias) {
    check_cublas(cublasLtMatmulDescCreate(operation.out(), CUBLAS_COMPUTE_32F, CUDA_R_32F), "cublasLtMatmulDescCreate",
                 key);
    set(CUBLASLT_MATMUL_DESC_TRANSA, key.transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N, key);
    set(CUBLASLT_MATMUL_DESC_TRANSB, key.transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N, key);
    if (key.bias) {
      set(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS, key);
      set(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, data_type(key.c_dtype), key);
      set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias, key);
    }
    describe(a, key.m, key.k, key.transpose_a, key.lda, key.dtype, key);
    describe(b, key.k, key.n, key.transpose_b, key.ldb, key.dtype, key);
    describe(c, key.m, key.n, false, key.ldc, key.c_dtype, key);
  }

 private:
  template <class Value>
  void set(cublasLtMatmulDescAttributes_t attribute, const Value& value, const CudaGemmKey& key) {
    check_cublas(cublasLtMatmulDescSetAttribute(operation.get(), attribute, &value, sizeof(value)),
                 "cublasLtMatmulDescSetAttribute", key);
  }

  /// op(matrix) is rows x cols.
  static void describe(Layout& layout, std::int64_t rows, std::int64_t cols, bool transposed, std::int64_t stride,
                       DType dtype, const CudaGemmKey& key) {
    if (transposed) std::swap(rows, cols);
    check_cublas(cublasLtMatrixLayoutCreate(layout.out(), data_type(dtype), static_cast<std::uint64_t>(cols),
                                            static_cast<std::uint64_t>(rows), stride),
                 "cublasLtMatrixLayoutCreate", key);
  }
};

CudaGemm::CudaGemm(CudaScratch& scratch) : scratch_(scratch), algorithms_(kept_algorithms) {
  const cublasStatus_t status = cublasLtCreate(&handle_);
  require(status == CUBLAS_STATUS_SUCCESS, "cublasLtCreate failed: {} (code {})", cublasLtGetStatusName(status),
          static_cast<int>(status));
}

CudaGemm::~CudaGemm() {
  if (handle_ != nullptr) cublasLtDestroy(handle_);
}

cublasLtMatmulAlgo_t CudaGemm::choose(const CudaGemmKey& key, const Plan& plan) const {
  Preference preference;
  check_cublas(cublasLtMatmulPreferenceCreate(preference.out()), "cublasLtMatmulPreferenceCreate", key);
  const auto set = [&](cublasLtMatmulPreferenceAttributes_t attribute, const auto& value) {
    check_cublas(cublasLtMatmulPreferenceSetAttribute(preference.get(), attribute, &value, sizeof(value)),
                 "cublasLtMatmulPreferenceSetAttribute", key);
  };
  const auto workspace = static_cast<std::size_t>(std::min(most_workspace, scratch_.capacity()));
  set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, workspace);
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, key.b_alignment);  // our B comes first
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, key.a_alignment);
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, key.c_alignment);
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, key.c_alignment);
  cublasLtMatmulHeuristicResult_t result{};
  int found = 0;
  check_cublas(cublasLtMatmulAlgoGetHeuristic(handle_, plan.operation.get(), plan.b.get(), plan.a.get(), plan.c.get(),
                                              plan.c.get(), preference.get(), 1, &result, &found),
               "cublasLtMatmulAlgoGetHeuristic", key);
  if (found == 0) check_cublas(CUBLAS_STATUS_NOT_SUPPORTED, "cublasLtMatmulAlgoGetHeuristic", key);
  return result.algo;
}

void CudaGemm::run(Stream& stream, const Gemm& gemm, const GemmSizes& sizes, float beta) {
  const CudaGemmKey key = key_of(gemm, sizes);
  const Plan plan(key, gemm.bias.data());
  const cublasLtMatmulAlgo_t& algorithm = algorithms_.get(key, [&] { return choose(key, plan); });
  const std::int64_t workspace = std::min(most_workspace, scratch_.capacity());
  const float one = 1.0F;
  check_cublas(
      cublasLtMatmul(handle_, plan.operation.get(), &one, gemm.b.data(), plan.b.get(), gemm.a.data(), plan.a.get(),
                     &beta, gemm.c.data(), plan.c.get(), gemm.c.data(), plan.c.get(), &algorithm,
                     scratch_.get(stream, workspace), static_cast<std::size_t>(workspace), cuda_stream(stream)),
      "cublasLtMatmul", key);
}

}  // namespace skrull
