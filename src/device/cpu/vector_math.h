#pragma once
// One register of fp32 lanes by the compilers' vector extensions: 16 with AVX-512, 8 with AVX, else 4. (Wider vectors
// than the machine's would work too, but g++ keeps them in memory.)
// + - * / and comparisons are the compiler's; `condition ? a : b` selects by lane. Private to the CPU device.

#include <cstddef>
#include <cstdint>
#include <utility>

#include "skrull/core/dtype.h"

#ifdef __AVX512F__
#include <immintrin.h>
#endif

// Everything here is inlined, so how a vector travels through a call does not matter: compile with -Wno-psabi.
#define SKRULL_INLINE [[gnu::always_inline]] inline

namespace skrull::simd {

#if defined(__AVX512F__)
inline constexpr int lanes = 16;
#elif defined(__AVX__)
inline constexpr int lanes = 8;
#else
inline constexpr int lanes = 4;
#endif
using Floats = float __attribute__((vector_size(4 * lanes)));
using Ints = std::int32_t __attribute__((vector_size(4 * lanes)));  ///< also what a comparison of Floats gives: 0 or -1

/// x - 0 is x for every x and disappears; x + 0 would not, as -0 + 0 is 0.
SKRULL_INLINE Floats broadcast(float value) {
  return value - Floats{};
}
SKRULL_INLINE Ints lane_numbers() {
  constexpr std::int32_t numbers[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  Ints result;
  __builtin_memcpy(&result, numbers, sizeof(result));
  return result;
}
/// -1 in lanes [0, count), 0 in the others; any count.
SKRULL_INLINE Ints first_lanes(std::int64_t count) {
  const auto bound = static_cast<std::int32_t>(count < 0 ? 0 : count > lanes ? lanes : count);
  return lane_numbers() < (Ints{} + bound);
}

/// Reinterprets the bits.
SKRULL_INLINE Ints as_ints(Floats x) {
  return reinterpret_cast<Ints>(x);
}
SKRULL_INLINE Floats as_floats(Ints x) {
  return reinterpret_cast<Floats>(x);
}

// --- memory: any alignment; bfloat16 widens exactly and is rounded to nearest even like the type bfloat16 ---

namespace detail {
using HalfWords = std::uint16_t __attribute__((vector_size(2 * lanes)));
using Words = std::uint32_t __attribute__((vector_size(4 * lanes)));

SKRULL_INLINE Floats widen(HalfWords bits) {
  return reinterpret_cast<Floats>(__builtin_convertvector(bits, Words) << 16);
}
SKRULL_INLINE HalfWords round_to_bfloat16(Floats x) {
  const Words word = reinterpret_cast<Words>(x);
  const Words rounded = (word + 0x7FFFU + ((word >> 16) & 1U)) >> 16;
  const Words quiet = (word >> 16) | 0x40U;
  const auto is_nan = reinterpret_cast<Words>((word & 0x7FFFFFFFU) > 0x7F800000U);
  return __builtin_convertvector((quiet & is_nan) | (rounded & ~is_nan), HalfWords);
}
}  // namespace detail

SKRULL_INLINE Floats load(const float* source) {
  Floats result;
  __builtin_memcpy(&result, source, sizeof(result));
  return result;
}
SKRULL_INLINE Floats load(const bfloat16* source) {
  detail::HalfWords bits;
  __builtin_memcpy(&bits, source, sizeof(bits));
  return detail::widen(bits);
}
SKRULL_INLINE void store(float* target, Floats x) {
  __builtin_memcpy(target, &x, sizeof(x));
}
SKRULL_INLINE void store(bfloat16* target, Floats x) {
  const detail::HalfWords bits = detail::round_to_bfloat16(x);
  __builtin_memcpy(static_cast<void*>(target), &bits, sizeof(bits));
}

/// Lanes [0, count) from memory (nothing behind them is touched), 0 in the others; 0 <= count <= lanes.
template <class Element>
SKRULL_INLINE Floats load_first(const Element* source, std::int64_t count) {
  if (count >= lanes) return load(source);
#ifdef __AVX512F__
  if constexpr (sizeof(Element) == sizeof(float))
    return _mm512_maskz_loadu_ps(static_cast<__mmask16>((1U << count) - 1U), source);
#endif
  Element buffer[lanes] = {};
  if (count > 0)
    __builtin_memcpy(static_cast<void*>(buffer), source, static_cast<std::size_t>(count) * sizeof(Element));
  return load(buffer);
}
/// Writes lanes [0, count) only; 0 <= count <= lanes.
template <class Element>
SKRULL_INLINE void store_first(Element* target, Floats x, std::int64_t count) {
  if (count >= lanes) return store(target, x);
#ifdef __AVX512F__
  if constexpr (sizeof(Element) == sizeof(float))
    return _mm512_mask_storeu_ps(target, static_cast<__mmask16>((1U << count) - 1U), x);
#endif
  Element buffer[lanes];
  store(buffer, x);
  if (count > 0)
    __builtin_memcpy(static_cast<void*>(target), buffer, static_cast<std::size_t>(count) * sizeof(Element));
}

// --- arithmetic ---

/// a * b + c, fused where the machine has it.
SKRULL_INLINE Floats fma(Floats a, Floats b, Floats c) {
  return a * b + c;
}
/// The larger; y where either is NaN.
SKRULL_INLINE Floats max(Floats x, Floats y) {
  return x > y ? x : y;
}
/// The smaller; y where either is NaN.
SKRULL_INLINE Floats min(Floats x, Floats y) {
  return x < y ? x : y;
}

/// Correctly rounded; NaN for negative numbers.
SKRULL_INLINE Floats sqrt(Floats x) {
#ifdef __AVX512F__
  return _mm512_maskz_sqrt_ps(0xFFFFU, x);
#else
  for (int lane = 0; lane < lanes; ++lane) x[lane] = __builtin_sqrtf(x[lane]);
  return x;
#endif
}

namespace detail {
/// Lane i becomes lane i + kBy, cyclically.
template <std::size_t kBy, class Vector, std::size_t... kLanes>
SKRULL_INLINE Vector rotate(Vector x, std::index_sequence<kLanes...>) {
  return __builtin_shufflevector(x, x, static_cast<int>((kLanes + kBy) % sizeof...(kLanes))...);
}

template <std::size_t kBy = lanes / 2, class Combine>
SKRULL_INLINE float reduce(Floats x, Combine combine) {
  x = combine(x, rotate<kBy>(x, std::make_index_sequence<lanes>{}));
  if constexpr (kBy > 1) return reduce<kBy / 2>(x, combine);
  return x[0];
}
}  // namespace detail

/// Sum of all lanes, always in the same order.
SKRULL_INLINE float sum(Floats x) {
  return detail::reduce(
      x, [](Floats a, Floats b) __attribute__((always_inline)) { return a + b; });
}
/// Largest lane.
SKRULL_INLINE float maximum(Floats x) {
  return detail::reduce(
      x, [](Floats a, Floats b) __attribute__((always_inline)) { return max(a, b); });
}

/// The nearest whole number, ties to even; |x| < 2^22.
SKRULL_INLINE Floats round_to_whole(Floats x) {
#ifdef __AVX512F__
  return _mm512_maskz_roundscale_ps(0xFFFFU, x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
#else
  const Floats shift = broadcast(12582912.0F);  // 1.5 * 2^23: the sum has no bits below 1
  return (x + shift) - shift;
#endif
}

/// x * 2^power for whole powers in [-252, 254], correctly rounded (subnormal results, overflow to infinity); x in [0.5,
/// 2].
SKRULL_INLINE Floats scale_by_power(Floats x, Floats power) {
#ifdef __AVX512F__
  return _mm512_maskz_scalef_ps(0xFFFFU, x, power);
#else
  const Ints whole = __builtin_convertvector(power, Ints);
  const Ints half = whole >> 1;  // two factors, as one would not be representable at either end
  return x * as_floats((half + 127) << 23) * as_floats((whole - half + 127) << 23);
#endif
}

/// 2^x for |x| <= 0.5, within 1.3 ulp (1.1 with fused multiply-add): relative minimax polynomial (Remez), its own error
/// 0.05 x 2^-24.
SKRULL_INLINE Floats exp2_fraction(Floats x) {
  Floats p = broadcast(0x1.470b48p-13F);
  p = fma(p, x, broadcast(0x1.5f7276p-10F));
  p = fma(p, x, broadcast(0x1.3b270ep-7F));
  p = fma(p, x, broadcast(0x1.c6ae72p-5F));
  p = fma(p, x, broadcast(0x1.ebfbe2p-3F));
  p = fma(p, x, broadcast(0x1.62e432p-1F));
  return fma(p, x, broadcast(1.0F));
}

/// 2^x within 1.3 ulp (1.1 with fused multiply-add) over the whole range: gradual underflow to 0, overflow to infinity,
/// NaN stays NaN.
SKRULL_INLINE Floats exp2(Floats x) {
  x = x < -151.0F ? broadcast(-151.0F) : x;
  x = x > 129.0F ? broadcast(129.0F) : x;
  const Floats power = round_to_whole(x);
  return scale_by_power(exp2_fraction(x - power), power);
}

/// e^x within 1.3 ulp (1.1 with fused multiply-add) over the whole range: gradual underflow to 0 (0 for -infinity),
/// overflow to infinity, NaN stays NaN. Cody-Waite reduction, then 1 + x + x^2 q(x) with q by Remez, its own error 0.05
/// x 2^-24.
SKRULL_INLINE Floats exp(Floats x) {
  x = x < -105.0F ? broadcast(-105.0F) : x;
  x = x > 90.0F ? broadcast(90.0F) : x;
  const Floats power = round_to_whole(x * 0x1.715476p+0F);
  // ln 2 in two parts, the first of 15 bits: its product with the power is exact.
  const Floats r = fma(power, broadcast(-0x1.7f7d1cp-20F), fma(power, broadcast(-0x1.62e4p-1F), x));
  Floats q = broadcast(0x1.6a23d0p-10F);
  q = fma(q, r, broadcast(0x1.123a20p-7F));
  q = fma(q, r, broadcast(0x1.5558f2p-5F));
  q = fma(q, r, broadcast(0x1.555492p-3F));
  q = fma(q, r, broadcast(0x1.fffffcp-2F));
  return scale_by_power(fma(r * r, q, r) + 1.0F, power);
}

}  // namespace skrull::simd

#undef SKRULL_INLINE
