#pragma once
// What kernels are written with, the one include of a .cu file. The same sources are compiled by nvcc for GPUs, and as
// C++ for the host, where simt/ runs them: launch(), shared arrays and warp instructions come from kernel_device.h or
// simt/kernel_host.h, everything else is CUDA's own language (on the host: simt/stand_in/).
//
// - SHARED_ARRAY(T, name, count): a static shared array, 16-byte aligned; `name` is used as a T*.
// - DYNAMIC_SHARED_ARRAY(T, name): the launch's dynamic shared memory, 256-byte aligned, as a T*. One type in each
//   kernel; further arrays are cut from it.
// - launch(kernel, grid, block, shared_bytes, stream, arguments...): queues a kernel. `grid` is a dim3 or a number of
//   blocks: nothing happens for an empty one. Throws RunFailure with the caller's position when the launch is refused.
//   On the host with the null stream the kernel runs at once.
// - mma_m16n8k16_bf16(d, a, b): d[4] += a[4] b[2], fragments of mma.sync.m16n8k16 (row, col, fp32 += bf16 bf16).
// - SharedRow(pointer): an address in shared memory, to add elements to and to flip bits of its offset in elements.
// - ldmatrix_x4<transposed>(r, row): four 8 x 8 matrices of 16-bit elements; lane l gives the address of row l % 8 of
//   matrix l / 8, a SharedRow, 16-byte aligned.
// - cp_async16(shared, global), cp_async16_or_zero(shared, global, present): 16 bytes, both aligned to 16; visible to
//   this thread after cp_async_wait, to others after a barrier behind it; zeros when not present (then `global` is not
//   read).
// - cp_async_commit(), cp_async_wait<n>(): closes a group; waits until at most n groups of this thread are open. A
//   thread waits for all it copied before it ends.
// - fast_exp2(x): 2^x within 2 ulp; what is below 2^-126 is 0.
//
// Rules that the host checks beyond CUDA's: no thread ends while others still come to __syncthreads(); every thread of
// a block meets the same __syncthreads(); all lanes of a mask meet the same call.

#include <cuda_bf16.h>
#include <cuda_runtime.h>

namespace skrull {
using bf16 = __nv_bfloat16;
}  // namespace skrull

#ifdef __CUDACC__
#include "kernel/kernel_device.h"  // IWYU pragma: export
#else
#include "simt/kernel_host.h"  // IWYU pragma: export
#endif
