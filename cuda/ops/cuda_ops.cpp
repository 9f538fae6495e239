#include "ops/cuda_ops.h"

#include <utility>

#include "ops/cuda_gemm.h"

namespace skrull {

CudaOps::CudaOps(CudaScratch& scratch, std::unique_ptr<CudaGemm> gemm) : scratch_(scratch), gemm_(std::move(gemm)) {}
CudaOps::~CudaOps() = default;

}  // namespace skrull
