#pragma once
// Instructions that CUDA C++ has no name for, as inline PTX. What they do is said in kernel.h.

#include <cuda_bf16.h>

#include <cstdint>

namespace skrull {

__device__ inline std::uint32_t shared_address(const void* shared) {
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(shared));
}

__device__ inline void mma_m16n8k16_bf16(float (&d)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2]) {
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%0,%1,%2,%3};"
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

/// 32 bits suffice: arithmetic with pointers takes twice as many registers and instructions.
class SharedRow {
 public:
  __device__ explicit SharedRow(const __nv_bfloat16* row) : address_(shared_address(row)) {}
  __device__ SharedRow operator+(int elements) const { return SharedRow(address_ + bytes(elements)); }
  __device__ SharedRow operator^(int elements) const { return SharedRow(address_ ^ bytes(elements)); }
  __device__ std::uint32_t address() const { return address_; }

 private:
  __device__ explicit SharedRow(std::uint32_t address) : address_(address) {}
  __device__ static std::uint32_t bytes(int elements) { return 2 * static_cast<std::uint32_t>(elements); }

  std::uint32_t address_;
};

template <bool transposed>
__device__ inline void ldmatrix_x4(std::uint32_t (&r)[4], SharedRow row) {
  if constexpr (transposed) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3},[%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(row.address())
                 : "memory");
  } else {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3},[%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(row.address())
                 : "memory");
  }
}

__device__ inline void cp_async16(void* shared, const void* global) {
  asm volatile("cp.async.cg.shared.global [%0],[%1],16;" ::"r"(shared_address(shared)), "l"(global) : "memory");
}

__device__ inline void cp_async16_or_zero(void* shared, const void* global, bool present) {
  const int source_bytes = present ? 16 : 0;
  asm volatile("cp.async.cg.shared.global [%0],[%1],16,%2;" ::"r"(shared_address(shared)), "l"(global),
               "r"(source_bytes)
               : "memory");
}

__device__ inline void cp_async_commit() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}

template <int allowed>
__device__ inline void cp_async_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(allowed) : "memory");
}

__device__ inline float fast_exp2(float x) {
  float power;
  asm("ex2.approx.ftz.f32 %0,%1;" : "=f"(power) : "f"(x));
  return power;
}

}  // namespace skrull
