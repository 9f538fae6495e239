#pragma once
// Element types and the 16-bit float formats.

#include <bit>
#include <cstdint>
#include <string_view>

namespace skrull {

enum class DType : std::uint8_t { float32, bfloat16, float16, float64, int32, int64, uint8 };

/// Bytes of one element.
constexpr std::int64_t size_of(DType dtype) {
  switch (dtype) {
    case DType::float32:
    case DType::int32:
      return 4;
    case DType::bfloat16:
    case DType::float16:
      return 2;
    case DType::float64:
    case DType::int64:
      return 8;
    case DType::uint8:
      return 1;
  }
  return 0;
}

/// The name used in configs: "float32", "bfloat16", ...
std::string_view name_of(DType dtype);

/// bfloat16: the upper half of an fp32; conversion rounds to nearest even and keeps NaN.
struct bfloat16 {
  std::uint16_t bits = 0;

  bfloat16() = default;
  explicit bfloat16(float value) {
    const auto word = std::bit_cast<std::uint32_t>(value);
    const bool is_nan = (word & 0x7FFFFFFFU) > 0x7F800000U;
    const std::uint32_t rounded = word + 0x7FFFU + ((word >> 16U) & 1U);
    bits = static_cast<std::uint16_t>(is_nan ? (word >> 16U) | 0x40U : rounded >> 16U);
  }
  explicit operator float() const { return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16U); }
};

/// IEEE half precision to fp32, exact (subnormals, infinities and NaN included). Only read from files, never computed
/// in.
float float_from_half(std::uint16_t half);

/// fp32 to IEEE half precision, round to nearest even; overflow becomes infinity.
std::uint16_t half_from_float(float value);

template <class T>
struct DTypeOf;
template <>
struct DTypeOf<float> {
  static constexpr DType value = DType::float32;
};
template <>
struct DTypeOf<bfloat16> {
  static constexpr DType value = DType::bfloat16;
};
template <>
struct DTypeOf<double> {
  static constexpr DType value = DType::float64;
};
template <>
struct DTypeOf<std::uint8_t> {
  static constexpr DType value = DType::uint8;
};
template <>
struct DTypeOf<std::int32_t> {
  static constexpr DType value = DType::int32;
};
template <>
struct DTypeOf<std::int64_t> {
  static constexpr DType value = DType::int64;
};
template <class T>
inline constexpr DType dtype_of = DTypeOf<T>::value;

}  // namespace skrull
