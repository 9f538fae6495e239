#include <cublasLt.h>
#include <cuda_bf16.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "simt/stand_in/runtime.h"

struct cublasLtMatmulDescOpaque_t {
  cublasOperation_t transpose_a = CUBLAS_OP_N;
  cublasOperation_t transpose_b = CUBLAS_OP_N;
  cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  const void* bias = nullptr;
  cudaDataType_t bias_type = CUDA_R_32F;
};
struct cublasLtMatrixLayoutOpaque_t {
  cudaDataType_t type;
  std::uint64_t rows;
  std::uint64_t columns;
  std::int64_t leading_dimension;
};
struct cublasLtMatmulPreferenceOpaque_t {
  std::uint64_t max_workspace = 0;
  std::uint32_t alignment[4] = {256, 256, 256, 256};  ///< of A, B, C, D
};
struct cublasLtContext {};

namespace skrull::simt {
namespace {

/// What cublasLtMatmulAlgo_t holds: what the algorithm was chosen for.
struct Algorithm {
  std::uint64_t workspace_bytes;
  std::uint32_t alignment[4];
};
static_assert(sizeof(Algorithm) <= sizeof(cublasLtMatmulAlgo_t));

template <class Value>
cublasStatus_t set(Value& member, const void* value, std::size_t bytes) {
  if (value == nullptr || bytes != sizeof(Value)) return CUBLAS_STATUS_INVALID_VALUE;
  std::memcpy(&member, value, bytes);
  return CUBLAS_STATUS_SUCCESS;
}

float load(const void* data, cudaDataType_t type, std::size_t i) {
  if (type == CUDA_R_32F) return static_cast<const float*>(data)[i];
  return static_cast<const __nv_bfloat16*>(data)[i];
}
void store(void* data, cudaDataType_t type, std::size_t i, float value) {
  if (type == CUDA_R_32F) {
    static_cast<float*>(data)[i] = value;
  } else {
    static_cast<__nv_bfloat16*>(data)[i] = value;
  }
}

/// A matrix where it lies, column-major.
struct Matrix {
  const void* data;
  cublasLtMatrixLayoutOpaque_t layout;

  float at(std::size_t row, std::size_t column) const {
    return load(data, layout.type, column * static_cast<std::size_t>(layout.leading_dimension) + row);
  }
};

struct Product {
  cublasLtMatmulDescOpaque_t description;
  float alpha;
  float beta;
  Matrix a, b, c;
  void* d;
  cublasLtMatrixLayoutOpaque_t d_layout;
  void* workspace;
  std::size_t workspace_bytes;

  std::size_t m() const { return d_layout.rows; }
  std::size_t n() const { return d_layout.columns; }
  std::size_t k() const { return description.transpose_a == CUBLAS_OP_T ? a.layout.rows : a.layout.columns; }

  bool sizes_fit() const {
    const bool ta = description.transpose_a == CUBLAS_OP_T;
    const bool tb = description.transpose_b == CUBLAS_OP_T;
    return (ta ? a.layout.columns : a.layout.rows) == m() && (tb ? b.layout.columns : b.layout.rows) == k() &&
           (tb ? b.layout.rows : b.layout.columns) == n() && c.layout.rows == m() && c.layout.columns == n() &&
           a.layout.type == b.layout.type && c.layout.type == d_layout.type;
  }

  void compute() const;
};

// Reads all of A and B before it writes; columns of op(A) are added up, multiplied by elements of op(B), in ascending
// k.
void Product::compute() const {
  if (workspace_bytes > 0) std::memset(workspace, 0xFF, workspace_bytes);
  std::vector<float> left(m() * k());
  for (std::size_t j = 0; j < k(); ++j) {
    for (std::size_t i = 0; i < m(); ++i) {
      left[j * m() + i] = description.transpose_a == CUBLAS_OP_T ? a.at(j, i) : a.at(i, j);
    }
  }
  std::vector<float> sums(m());
  for (std::size_t column = 0; column < n(); ++column) {
    std::fill(sums.begin(), sums.end(), 0.0f);
    for (std::size_t j = 0; j < k(); ++j) {
      const float factor = description.transpose_b == CUBLAS_OP_T ? b.at(column, j) : b.at(j, column);
      const float* const terms = &left[j * m()];
      for (std::size_t i = 0; i < m(); ++i) sums[i] += terms[i] * factor;
    }
    for (std::size_t i = 0; i < m(); ++i) {
      float value = alpha * sums[i];
      if (beta != 0.0f) value += beta * c.at(i, column);
      if (description.epilogue == CUBLASLT_EPILOGUE_BIAS) value += load(description.bias, description.bias_type, i);
      store(d, d_layout.type, column * static_cast<std::size_t>(d_layout.leading_dimension) + i, value);
    }
  }
}

bool is_aligned(const void* address, std::int64_t leading_dimension, cudaDataType_t type, std::uint32_t alignment) {
  const std::uint64_t column = static_cast<std::uint64_t>(leading_dimension) * (type == CUDA_R_32F ? 4 : 2);
  return (reinterpret_cast<std::uintptr_t>(address) | column) % alignment == 0;
}

}  // namespace
}  // namespace skrull::simt

using namespace skrull::simt;

const char* cublasLtGetStatusName(cublasStatus_t status) {
  switch (status) {
    case CUBLAS_STATUS_SUCCESS:
      return "CUBLAS_STATUS_SUCCESS";
    case CUBLAS_STATUS_NOT_INITIALIZED:
      return "CUBLAS_STATUS_NOT_INITIALIZED";
    case CUBLAS_STATUS_INVALID_VALUE:
      return "CUBLAS_STATUS_INVALID_VALUE";
    case CUBLAS_STATUS_EXECUTION_FAILED:
      return "CUBLAS_STATUS_EXECUTION_FAILED";
    case CUBLAS_STATUS_NOT_SUPPORTED:
      return "CUBLAS_STATUS_NOT_SUPPORTED";
  }
  return "unknown status";
}
const char* cublasLtGetStatusString(cublasStatus_t status) {
  return cublasLtGetStatusName(status);
}

cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
  *handle = new cublasLtContext;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
  delete handle;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* description, cublasComputeType_t compute,
                                        cudaDataType_t scale) {
  if (compute != CUBLAS_COMPUTE_32F || scale != CUDA_R_32F) return CUBLAS_STATUS_NOT_SUPPORTED;
  *description = new cublasLtMatmulDescOpaque_t;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t description) {
  delete description;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t description,
                                              cublasLtMatmulDescAttributes_t attribute, const void* value,
                                              std::size_t bytes) {
  switch (attribute) {
    case CUBLASLT_MATMUL_DESC_TRANSA:
      return set(description->transpose_a, value, bytes);
    case CUBLASLT_MATMUL_DESC_TRANSB:
      return set(description->transpose_b, value, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE:
      return set(description->epilogue, value, bytes);
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER:
      return set(description->bias, value, bytes);
    case CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE:
      return set(description->bias_type, value, bytes);
  }
  return CUBLAS_STATUS_INVALID_VALUE;
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* layout, cudaDataType_t type, std::uint64_t rows,
                                          std::uint64_t columns, std::int64_t leading_dimension) {
  if (type != CUDA_R_32F && type != CUDA_R_16BF) return CUBLAS_STATUS_NOT_SUPPORTED;
  if (leading_dimension < static_cast<std::int64_t>(rows)) return CUBLAS_STATUS_INVALID_VALUE;
  *layout = new cublasLtMatrixLayoutOpaque_t{type, rows, columns, leading_dimension};
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) {
  delete layout;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* preference) {
  *preference = new cublasLtMatmulPreferenceOpaque_t;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference) {
  delete preference;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t attribute, const void* value,
                                                    std::size_t bytes) {
  if (attribute == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES) return set(preference->max_workspace, value, bytes);
  const int matrix = attribute - CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES;
  if (matrix < 0 || matrix >= 4) return CUBLAS_STATUS_INVALID_VALUE;
  return set(preference->alignment[matrix], value, bytes);
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t description,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int wanted,
                                              cublasLtMatmulHeuristicResult_t* results, int* found) {
  if (handle == nullptr || description == nullptr || a == nullptr || b == nullptr || c == nullptr || d == nullptr ||
      wanted < 1) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  Algorithm algorithm{};
  algorithm.workspace_bytes = std::min<std::uint64_t>(preference->max_workspace, 1 << 20);
  std::copy(std::begin(preference->alignment), std::end(preference->alignment), algorithm.alignment);
  results[0] = {};
  std::memcpy(&results[0].algo, &algorithm, sizeof(algorithm));
  results[0].workspaceSize = algorithm.workspace_bytes;
  *found = 1;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t description, const void* alpha,
                              const void* a, cublasLtMatrixLayout_t a_layout, const void* b,
                              cublasLtMatrixLayout_t b_layout, const void* beta, const void* c,
                              cublasLtMatrixLayout_t c_layout, void* d, cublasLtMatrixLayout_t d_layout,
                              const cublasLtMatmulAlgo_t* algorithm, void* workspace, std::size_t workspace_bytes,
                              cudaStream_t stream) {
  if (handle == nullptr || algorithm == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
  Algorithm chosen;
  std::memcpy(&chosen, algorithm, sizeof(chosen));
  const Product product{*description,
                        *static_cast<const float*>(alpha),
                        *static_cast<const float*>(beta),
                        {a, *a_layout},
                        {b, *b_layout},
                        {c, *c_layout},
                        d,
                        *d_layout,
                        workspace,
                        chosen.workspace_bytes};
  const bool aligned = is_aligned(a, a_layout->leading_dimension, a_layout->type, chosen.alignment[0]) &&
                       is_aligned(b, b_layout->leading_dimension, b_layout->type, chosen.alignment[1]) &&
                       is_aligned(c, c_layout->leading_dimension, c_layout->type, chosen.alignment[2]) &&
                       is_aligned(d, d_layout->leading_dimension, d_layout->type, chosen.alignment[3]);
  if (!product.sizes_fit() || !aligned || workspace_bytes < chosen.workspace_bytes) return CUBLAS_STATUS_INVALID_VALUE;
  const cudaError_t error = queue_step(stream, whole_step([product] { product.compute(); }));
  return error == cudaSuccess ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_EXECUTION_FAILED;
}
