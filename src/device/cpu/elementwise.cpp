// Copies, conversions, sums and SwiGLU: one pass over memory each.

#include <cstring>

#include "cpu/cpu_ops.h"
#include "cpu/kernel.h"
#include "skrull/device/operation_operands.h"

namespace skrull {

namespace {

void copy_rows(ConstTensorView source, TensorView target) {
  const std::int64_t size = size_of(source.dtype());
  const bool contiguous = source.contiguous() && target.contiguous();
  parallel_elements(
      source.rows(), source.cols(), contiguous, [&](std::int64_t row, std::int64_t begin, std::int64_t end) {
        const char* from = static_cast<const char*>(source.data()) + row * source.row_stride() * size;
        char* to = static_cast<char*>(target.data()) + row * target.row_stride() * size;
        std::memmove(to + begin * size, from + begin * size, static_cast<std::size_t>((end - begin) * size));
      });
}

/// Copies row from(i) of the source to row to(i) of the target for i in [0, count).
template <class From, class To>
void copy_indexed_rows(ConstTensorView source, TensorView target, std::int64_t count, const From& from, const To& to) {
  const std::int64_t size = size_of(source.dtype());
  const auto bytes = static_cast<std::size_t>(source.cols() * size);
  if (bytes == 0) return;
  parallel_ranges(count, source.cols(), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      std::memcpy(static_cast<char*>(target.data()) + to(i) * target.row_stride() * size,
                  static_cast<const char*>(source.data()) + from(i) * source.row_stride() * size, bytes);
    }
  });
}

/// target = fn(source, target), element by element in fp32.
template <class F>
void update(ConstTensorView source, TensorView target, const F& fn) {
  with_dtype(source.dtype(), [&]<class S>(std::type_identity<S>) {
    with_dtype(target.dtype(), [&]<class T>(std::type_identity<T>) {
      parallel_elements(source.rows(), source.cols(), source.contiguous() && target.contiguous(),
                        [&](std::int64_t row, std::int64_t begin, std::int64_t end) {
                          const S* from = row_of<S>(source, row) + begin;
                          T* to = row_of<T>(target, row) + begin;
                          for_each_vector(end - begin, [&](std::int64_t i, auto size) {
                            const simd::Floats old = simd::load_first(to + i, size);
                            simd::store_first(to + i, fn(simd::load_first(from + i, size), old), size);
                          });
                        });
    });
  });
}

/// 1 / (1 + e^-x): 0 and 1 at the ends.
[[gnu::always_inline]] inline simd::Floats sigmoid(simd::Floats x) {
  return 1.0F / (1.0F + simd::exp(-x));
}

}  // namespace

void CpuOps::fill_zero(Stream& stream, TensorView x) {
  run(stream, [=] {
    const std::int64_t size = size_of(x.dtype());
    parallel_elements(x.rows(), x.cols(), x.contiguous(), [&](std::int64_t row, std::int64_t begin, std::int64_t end) {
      char* data = static_cast<char*>(x.data()) + row * x.row_stride() * size;
      std::memset(data + begin * size, 0, static_cast<std::size_t>((end - begin) * size));
    });
  });
}

void CpuOps::cast(Stream& stream, ConstTensorView source, TensorView target) {
  check_cast(source, target);
  if (source.dtype() == target.dtype()) {
    run(stream, [=] { copy_rows(source, target); });
    return;
  }
  run(stream, [=] { update(source, target, [](simd::Floats from, simd::Floats) { return from; }); });
}

void CpuOps::add(Stream& stream, ConstTensorView source, TensorView target) {
  check_add(source, target);
  run(stream, [=] { update(source, target, [](simd::Floats from, simd::Floats to) { return to + from; }); });
}

void CpuOps::scale(Stream& stream, float factor, TensorView x) {
  check_scale(x);
  run(stream, [=] { update(x, x, [=](simd::Floats, simd::Floats to) { return to * factor; }); });
}

void CpuOps::gather_rows(Stream& stream, ConstTensorView source, ConstTensorView rows, TensorView target) {
  check_gather_rows(source, rows, target);
  run(stream, [=] {
    const auto* index = static_cast<const std::int32_t*>(rows.data());
    copy_indexed_rows(
        source, target, rows.cols(), [=](std::int64_t i) { return std::int64_t{index[i]}; },
        [](std::int64_t i) { return i; });
  });
}

void CpuOps::scatter_rows(Stream& stream, ConstTensorView source, ConstTensorView rows, TensorView target) {
  check_scatter_rows(source, rows, target);
  run(stream, [=] {
    const auto* index = static_cast<const std::int32_t*>(rows.data());
    copy_indexed_rows(
        source, target, rows.cols(), [](std::int64_t i) { return i; },
        [=](std::int64_t i) { return std::int64_t{index[i]}; });
  });
}

void CpuOps::swiglu_forward(Stream& stream, ConstTensorView gate_up, TensorView y) {
  check_swiglu_forward(gate_up, y);
  run(stream, [=] {
    with_dtype(y.dtype(), [&]<class T>(std::type_identity<T>) {
      const std::int64_t width = y.cols();
      parallel_ranges(y.rows(), 8 * width, [&](std::int64_t first, std::int64_t last) {
        for (std::int64_t t = first; t < last; ++t) {
          const T* gate = row_of<T>(gate_up, t);
          const T* up = gate + width;
          T* out = row_of<T>(y, t);
          for_each_vector(width, [&](std::int64_t i, auto size) {
            const simd::Floats x = simd::load_first(gate + i, size);
            simd::store_first(out + i, x * sigmoid(x) * simd::load_first(up + i, size), size);
          });
        }
      });
    });
  });
}

void CpuOps::swiglu_backward(Stream& stream, ConstTensorView gate_up, ConstTensorView dy, TensorView dgate_up) {
  check_swiglu_backward(gate_up, dy, dgate_up);
  run(stream, [=] {
    with_dtype(dy.dtype(), [&]<class T>(std::type_identity<T>) {
      const std::int64_t width = dy.cols();
      parallel_ranges(dy.rows(), 8 * width, [&](std::int64_t first, std::int64_t last) {
        for (std::int64_t t = first; t < last; ++t) {
          const T* gate = row_of<T>(gate_up, t);
          const T* up = gate + width;
          const T* dout = row_of<T>(dy, t);
          T* dgate = row_of<T>(dgate_up, t);
          T* dup = dgate + width;
          for_each_vector(width, [&](std::int64_t i, auto size) {
            const simd::Floats x = simd::load_first(gate + i, size);
            const simd::Floats u = simd::load_first(up + i, size);
            const simd::Floats g = simd::load_first(dout + i, size);
            const simd::Floats s = sigmoid(x);
            simd::store_first(dgate + i, g * u * s * (1.0F + x * (1.0F - s)), size);
            simd::store_first(dup + i, g * x * s, size);
          });
        }
      });
    });
  });
}

}  // namespace skrull
