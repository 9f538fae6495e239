#include "convert.h"

#include <cstring>

#include "skrull/core/error.h"

namespace skrull {
namespace {

template <class Stored, class Convert>
void read_elements(std::span<const char> source, std::span<float> target, Convert convert) {
  const auto count = static_cast<std::int64_t>(target.size());
#pragma omp parallel for schedule(static)
  for (std::int64_t i = 0; i < count; ++i) {
    Stored stored;
    std::memcpy(&stored, source.data() + i * static_cast<std::int64_t>(sizeof(Stored)), sizeof stored);
    target[static_cast<std::size_t>(i)] = convert(stored);
  }
}

template <class Stored, class Convert>
void write_elements(std::span<const float> source, std::span<char> target, Convert convert) {
  const auto count = static_cast<std::int64_t>(source.size());
#pragma omp parallel for schedule(static)
  for (std::int64_t i = 0; i < count; ++i) {
    const Stored stored = convert(source[static_cast<std::size_t>(i)]);
    std::memcpy(target.data() + i * static_cast<std::int64_t>(sizeof(Stored)), &stored, sizeof stored);
  }
}

void check_sizes(DType dtype, std::size_t elements, std::size_t bytes) {
  require(is_weight_dtype(dtype), "weights can't be stored as {}", name_of(dtype));
  require(elements * static_cast<std::size_t>(size_of(dtype)) == bytes, "{} elements of {} in {} bytes", elements,
          name_of(dtype), bytes);
}

}  // namespace

bool is_weight_dtype(DType dtype) {
  return dtype == DType::float32 || dtype == DType::bfloat16 || dtype == DType::float16;
}

void convert_to_float(DType dtype, std::span<const char> source, std::span<float> target) {
  check_sizes(dtype, target.size(), source.size());
  if (dtype == DType::float32) {
    read_elements<float>(source, target, [](float value) { return value; });
  } else if (dtype == DType::bfloat16) {
    read_elements<bfloat16>(source, target, [](bfloat16 value) { return static_cast<float>(value); });
  } else {
    read_elements<std::uint16_t>(source, target, float_from_half);
  }
}

void convert_from_float(DType dtype, std::span<const float> source, std::span<char> target) {
  check_sizes(dtype, source.size(), target.size());
  if (dtype == DType::float32) {
    write_elements<float>(source, target, [](float value) { return value; });
  } else if (dtype == DType::bfloat16) {
    write_elements<bfloat16>(source, target, [](float value) { return bfloat16(value); });
  } else {
    write_elements<std::uint16_t>(source, target, half_from_float);
  }
}

}  // namespace skrull
