#include "ops/cuda_ops.h"

#include <utility>

#include "ops/cuda_gemm.h"

namespace skrull {

CudaOps::CudaOps(CudaScratch& scratch, std::unique_ptr<CudaGemm> gemm, PreferredAttention preferred_attention)
    : scratch_(scratch), gemm_(std::move(gemm)), attention_(std::move(preferred_attention)) {}
CudaOps::~CudaOps() = default;

}  // namespace skrull
