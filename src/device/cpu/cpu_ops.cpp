#include "cpu/cpu_ops.h"

#include <omp.h>

#include "cpu/gemm.h"

namespace skrull {

CpuOps::CpuOps(int threads, Stream& compute_stream)
    : threads_(threads), compute_stream_(compute_stream), gemm_cache_(std::make_unique<GemmCache>()) {}

CpuOps::~CpuOps() = default;

// OpenMP keeps the number of threads per calling thread, and oneDNN asks OpenMP.
void CpuOps::set_threads(const Stream& stream) const {
  omp_set_num_threads(&stream == &compute_stream_ ? threads_ : 1);
}

}  // namespace skrull
