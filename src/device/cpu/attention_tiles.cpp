#include "cpu/attention_tiles.h"

#include <cstdlib>
#include <memory>
#include <new>
#include <vector>

namespace skrull::attention {

namespace {

/// Rows i of `x` become lanes i: four rounds that interleave rows 8 apart.
[[gnu::always_inline]] inline void transpose(Floats (&x)[lanes]) {
  for (int round = 0; round < 4; ++round) {
    Floats y[lanes];
#pragma GCC unroll 8
    for (int i = 0; i < 8; ++i) {
      y[2 * i] = __builtin_shufflevector(x[i], x[i + 8], 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
      y[2 * i + 1] =
          __builtin_shufflevector(x[i], x[i + 8], 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
    }
#pragma GCC unroll 16
    for (int i = 0; i < lanes; ++i) x[i] = y[i];
  }
}

template <class Element>
const Element* element_at(ConstTensorView view, std::int64_t row, std::int64_t column) {
  return view.as<Element>() + row * view.row_stride() + column;
}

struct Free {
  void operator()(float* memory) const { std::free(memory); }
};

/// Throws when two of the ranges [begin, begin + length) meet.
void check_disjoint(const char* what, std::vector<std::pair<std::int64_t, std::int64_t>> ranges) {
  std::sort(ranges.begin(), ranges.end());
  for (std::size_t i = 1; i < ranges.size(); ++i) {
    const auto& [begin, length] = ranges[i - 1];
    require(begin + length <= ranges[i].first, "attention: {} rows {}+{} and {}+{} of two segments overlap", what,
            begin, length, ranges[i].first, ranges[i].second);
  }
}

}  // namespace

void pack_rows(ConstTensorView source, std::int64_t row, std::int64_t rows, std::int64_t head, std::int64_t heads,
               std::int64_t head_dim, std::int64_t stride, float factor, float* target) {
  with_element(source.dtype(), [&](auto element) {
    for (std::int64_t i = 0; i < rows; ++i) {
      for (std::int64_t h = 0; h < heads; ++h) {
        const auto* from = element_at<decltype(element)>(source, row + i, (head + h) * head_dim);
        for (std::int64_t column = 0; column < head_dim; column += lanes)
          simd::store(target + column, simd::load_first(from + column, head_dim - column) * factor);
        target += stride;
      }
    }
  });
}

void pack_transposed(ConstTensorView source, std::int64_t row, std::int64_t rows, std::int64_t head,
                     std::int64_t head_dim, float* panels) {
  with_element(source.dtype(), [&](auto element) {
    const std::int64_t width = round_up(rows, panel_width);
    for (std::int64_t first = 0; first < width; first += lanes) {
      float* panel = panels + first / panel_width * panel_width * head_dim + first % panel_width;
      for (std::int64_t dim = 0; dim < head_dim; dim += lanes) {
        Floats block[lanes];
        for (int i = 0; i < lanes; ++i) {
          const bool inside = first + i < rows;
          block[i] =
              inside ? simd::load_first(element_at<decltype(element)>(source, row + first + i, head * head_dim + dim),
                                        head_dim - dim)
                     : Floats{};
        }
        transpose(block);
        const std::int64_t dims = std::min<std::int64_t>(lanes, head_dim - dim);
        for (std::int64_t i = 0; i < dims; ++i) simd::store(panel + (dim + i) * panel_width, block[i]);
      }
    }
  });
}

void add_rows(const float* source, std::int64_t rows, std::int64_t heads, std::int64_t head_dim, std::int64_t stride,
              float factor, TensorView target, std::int64_t row, std::int64_t head) {
  for (std::int64_t i = 0; i < rows; ++i) {
    for (std::int64_t h = 0; h < heads; ++h) {
      float* to = target.as<float>() + (row + i) * target.row_stride() + (head + h) * head_dim;
      for (std::int64_t column = 0; column < head_dim; column += lanes) {
        const std::int64_t count = head_dim - column;
        const Floats sum =
            simd::fma(simd::load(source + column), simd::broadcast(factor), simd::load_first(to + column, count));
        simd::store_first(to + column, sum, count);
      }
      source += stride;
    }
  }
}

float* scratch(std::int64_t floats) {
  thread_local std::unique_ptr<float, Free> memory;
  thread_local std::int64_t capacity = 0;
  if (floats > capacity) {
    memory.reset();
    capacity = 0;
    const std::int64_t bytes = round_up(floats * std::int64_t{sizeof(float)}, 64);
    memory.reset(static_cast<float*>(std::aligned_alloc(64, static_cast<std::size_t>(bytes))));
    if (!memory) throw_run_failure("attention: no memory for {} bytes of scratch", bytes);
    capacity = floats;
  }
  return memory.get();
}

void check_view(const char* name, ConstTensorView view, std::int64_t rows, std::int64_t cols, DType also) {
  require(view.rows() == rows && view.cols() == cols, "attention: {} is {}x{}, expected {}x{}", name, view.rows(),
          view.cols(), rows, cols);
  require(view.dtype() == DType::float32 || view.dtype() == also, "attention: {} holds {}, expected float32{}{}", name,
          name_of(view.dtype()), also == DType::float32 ? "" : " or ", also == DType::float32 ? "" : name_of(also));
}

void check_inputs(const AttentionShape& shape, std::span<const AttentionSegment> segments, ConstTensorView q,
                  ConstTensorView k, ConstTensorView v, bool keys_once) {
  require(shape.num_heads > 0 && shape.num_kv_heads > 0 && shape.num_heads % shape.num_kv_heads == 0 &&
              shape.head_dim > 0 && shape.scale >= 0,
          "attention: {} heads, {} key-value heads of size {}, scale {}", shape.num_heads, shape.num_kv_heads,
          shape.head_dim, shape.scale);
  check_view("q", q, q.rows(), shape.num_heads * shape.head_dim, DType::bfloat16);
  check_view("k", k, k.rows(), shape.num_kv_heads * shape.head_dim, q.dtype());
  check_view("v", v, k.rows(), shape.num_kv_heads * shape.head_dim, q.dtype());
  std::vector<std::pair<std::int64_t, std::int64_t>> queries;
  std::vector<std::pair<std::int64_t, std::int64_t>> keys;
  for (const AttentionSegment& s : segments) {
    require(s.q_len >= 0 && s.k_len >= 0 && s.q_begin >= 0 && s.k_begin >= 0 && s.q_begin + s.q_len <= q.rows() &&
                s.k_begin + s.k_len <= k.rows(),
            "attention: segment of queries {}+{} of {}, keys {}+{} of {}", s.q_begin, s.q_len, q.rows(), s.k_begin,
            s.k_len, k.rows());
    if (s.q_len > 0) queries.emplace_back(s.q_begin, s.q_len);
    if (s.k_len > 0) keys.emplace_back(s.k_begin, s.k_len);
  }
  check_disjoint("query", std::move(queries));
  if (keys_once) check_disjoint("key", std::move(keys));
}

}  // namespace skrull::attention
