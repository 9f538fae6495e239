#pragma once
// The host's side of kernel/kernel.h: what kernels are written with, run by simt.h. Documented there.

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <tuple>
#include <utility>

#include "kernel/call_position.h"
#include "simt/block.h"
#include "simt/launch.h"
#include "simt/warp.h"

// A static object of each declaration (of each instance of a template) names the array.
#define SHARED_ARRAY(T, name, count)      \
  static const char simt_site_##name = 0; \
  T* const name =                         \
      static_cast<T*>(::skrull::simt::static_shared_array(&simt_site_##name, sizeof(T) * std::size_t{count}))
#define DYNAMIC_SHARED_ARRAY(T, name) T* const name = static_cast<T*>(::skrull::simt::dynamic_shared_array())

namespace skrull {
namespace simt {

inline void* static_shared_array(const void* site, std::size_t bytes) {
  const RuntimeScope scope;
  return current_block->shared_memory().static_array(site, bytes);
}
inline void* dynamic_shared_array() {
  const RuntimeScope scope;
  return current_block->shared_memory().dynamic();
}

void add_async_copy(void* shared, const void* global, CallPosition where);
void commit_async_copies();
bool take_async_copies(std::size_t allowed, AsyncCopies::Group& group);

}  // namespace simt

inline void mma_m16n8k16_bf16(float (&d)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2],
                              CallPosition where = CallPosition::current()) {
  simt::mma_m16n8k16(d, a, b, where);
}

class SharedRow {
 public:
  explicit SharedRow(const __nv_bfloat16* row) : address_(reinterpret_cast<std::uintptr_t>(row)) {}
  SharedRow operator+(int elements) const { return SharedRow(address_ + bytes(elements)); }
  SharedRow operator^(int elements) const { return SharedRow(address_ ^ bytes(elements)); }
  std::uintptr_t address() const { return address_; }

 private:
  explicit SharedRow(std::uintptr_t address) : address_(address) {}
  static std::uintptr_t bytes(int elements) { return 2 * static_cast<std::uintptr_t>(elements); }

  std::uintptr_t address_;
};

template <bool transposed>
void ldmatrix_x4(std::uint32_t (&r)[4], SharedRow row, CallPosition where = CallPosition::current()) {
  if (row.address() % 16 != 0) simt::fail_at({"ldmatrix", where}, "the row is not aligned to 16 bytes");
  std::uint16_t elements[8];
  std::memcpy(elements, reinterpret_cast<const void*>(row.address()), sizeof(elements));  // where sanitizers see it
  simt::load_matrices(transposed, r, elements, where);
}

inline void cp_async16(void* shared, const void* global, CallPosition where = CallPosition::current()) {
  simt::add_async_copy(shared, global, where);
  std::memset(shared, 0xFF, 16);
}
inline void cp_async16_or_zero(void* shared, const void* global, bool present,
                               CallPosition where = CallPosition::current()) {
  simt::add_async_copy(shared, present ? global : nullptr, where);
  std::memset(shared, 0xFF, 16);
}
inline void cp_async_commit() {
  simt::commit_async_copies();
}
template <int allowed>
void cp_async_wait() {
  simt::AsyncCopies::Group group;
  while (simt::take_async_copies(allowed, group)) {
    for (const simt::AsyncCopies::Copy& copy : group) {
      if (copy.source != nullptr) {
        std::memcpy(copy.target, copy.source, 16);
      } else {
        std::memset(copy.target, 0, 16);
      }
    }
  }
}

inline float fast_exp2(float x) {
  const float power = std::exp2(x);
  return power < std::numeric_limits<float>::min() ? 0 : power;
}

template <class... Parameters, class... Arguments>
void launch(void (*kernel)(Parameters...), LaunchGrid grid, dim3 block, std::size_t shared_bytes, cudaStream_t stream,
            Arguments&&... arguments) {
  std::tuple<Parameters...> values(static_cast<Parameters>(std::forward<Arguments>(arguments))...);
  simt::queue_kernel(stream, grid, block, shared_bytes, reinterpret_cast<const void*>(kernel),
                     [kernel, values = std::move(values)] { std::apply(kernel, values); });
}

}  // namespace skrull
