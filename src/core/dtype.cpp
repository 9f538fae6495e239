#include "skrull/core/dtype.h"

#include <cmath>

namespace skrull {

std::string_view name_of(DType dtype) {
  switch (dtype) {
    case DType::float32:
      return "float32";
    case DType::bfloat16:
      return "bfloat16";
    case DType::float16:
      return "float16";
    case DType::int32:
      return "int32";
    case DType::float64:
      return "float64";
    case DType::int64:
      return "int64";
    case DType::uint8:
      return "uint8";
  }
  return "unknown";
}

float float_from_half(std::uint16_t half) {
  const std::uint32_t sign = static_cast<std::uint32_t>(half & 0x8000U) << 16U;
  const std::uint32_t exponent = (half >> 10U) & 0x1FU;
  const std::uint32_t mantissa = half & 0x3FFU;
  if (exponent == 0) {  // zero or subnormal: mantissa x 2^-24
    const float magnitude = std::ldexp(static_cast<float>(mantissa), -24);
    return sign != 0 ? -magnitude : magnitude;
  }
  const std::uint32_t wide = exponent == 31 ? 0xFFU : exponent + 112;
  return std::bit_cast<float>(sign | (wide << 23U) | (mantissa << 13U));
}

std::uint16_t half_from_float(float value) {
  const auto word = std::bit_cast<std::uint32_t>(value);
  const auto sign = static_cast<std::uint16_t>((word >> 16U) & 0x8000U);
  const std::uint32_t magnitude = word & 0x7FFFFFFFU;
  if (magnitude > 0x7F800000U) return sign | 0x7E00U;                // NaN
  if (magnitude >= 0x477FF000U) return sign | 0x7C00U;               // rounds to infinity
  if (magnitude < 0x38800000U) {                                     // below 2^-14: subnormal
    const float scaled = std::bit_cast<float>(magnitude) * 0x1p24F;  // in units of 2^-24
    return sign | static_cast<std::uint16_t>(std::nearbyint(scaled));
  }
  const std::uint32_t rounded = magnitude + 0xFFFU + ((magnitude >> 13U) & 1U);
  return sign | static_cast<std::uint16_t>((rounded - 0x38000000U) >> 13U);
}

}  // namespace skrull
