// Rotary position embedding.

#include <cmath>

#include "ops_check/check_case.h"

namespace skrull {

namespace {

HostMatrix inverse_frequencies(std::int64_t head_dim) {
  HostMatrix frequencies(DType::float32, 1, head_dim / 2);
  frequencies.fill([&](std::int64_t, std::int64_t i) {
    return std::pow(1e6, -2.0 * static_cast<double>(i) / static_cast<double>(head_dim));
  });
  return frequencies;
}

/// cos and sin of angles far from each other.
HostMatrix random_rotations(std::int64_t tokens, std::int64_t head_dim) {
  const HostMatrix frequencies = inverse_frequencies(head_dim);
  HostMatrix table(DType::float32, tokens, head_dim);
  const std::int64_t half = head_dim / 2;
  table.fill([&](std::int64_t t, std::int64_t i) {
    const double angle = static_cast<double>(t * 7) * frequencies(0, i % half);
    return i < half ? std::cos(angle) : std::sin(angle);
  });
  return table;
}

struct RopeShape {
  std::int64_t tokens, heads, head_dim, padding, offset;
};

std::vector<RopeShape> rope_shapes(const CheckContext& context) {
  std::vector<RopeShape> shapes = {{0, 2, 16, 0, 0},  {1, 1, 2, 0, 0},  {3, 2, 16, 6, 0}, {5, 3, 64, 0, 0},
                                   {4, 2, 80, 16, 8}, {2, 2, 96, 1, 1}, {2, 1, 256, 0, 0}};
  if (!context.small_shapes_only) shapes.push_back({150, 7, 128, 64, 0});
  return shapes;
}

}  // namespace

void check_rope_table(CheckContext& context) {
  for (const std::int64_t head_dim : {2, 64, 70}) {
    CheckCase c(context, "7 positions up to 1048575, head size " + std::to_string(head_dim));
    const HostMatrix positions = HostMatrix::of(DType::int32, {0, 1, 2, 1000, 32767, 131071, 1048575});
    const HostMatrix frequencies = inverse_frequencies(head_dim);
    const ConstTensorView positions_view = c.input(positions);
    const ConstTensorView frequencies_view = c.input(frequencies);
    auto& table = c.result("table", HostMatrix::random(DType::float32, positions.cols(), head_dim, "old", 1, 4));
    c.run([&](Ops& ops, Stream& stream) { ops.rope_table(stream, positions_view, frequencies_view, table.view()); });
    c.expect(table, [&](std::int64_t t, std::int64_t i) {
      const double angle = positions(0, t) * frequencies(0, i % (head_dim / 2));
      // The angle is rounded in fp64.
      return Expected{i < head_dim / 2 ? std::cos(angle) : std::sin(angle),
                      4 * rounding_of(DType::float64) * (1 + angle)};
    });
  }
}

void check_rope(CheckContext& context) {
  for (const RopeShape& s : rope_shapes(context)) {
    for (const bool inverse : {false, true}) {
      const CheckLayout layout{s.tokens, s.heads * s.head_dim, s.padding, s.offset};
      CheckCase c(context,
                  layout.describe() + ", head size " + std::to_string(s.head_dim) + (inverse ? ", inverse" : ""));
      const HostMatrix table = random_rotations(s.tokens, s.head_dim);
      const HostMatrix before = layout.random(context.dtype, "x");
      const ConstTensorView table_view = c.input(table);
      auto& x = c.result("x", before);
      c.run([&](Ops& ops, Stream& stream) { ops.rope(stream, x.view(), table_view, s.head_dim, inverse); });
      c.expect(x, [&](std::int64_t t, std::int64_t j) {
        const std::int64_t half = s.head_dim / 2;
        const std::int64_t i = j % s.head_dim;
        const bool lower = i < half;
        const double cosine = table(t, i % half);
        const double sine = (inverse ? -1 : 1) * table(t, half + i % half);
        const double straight = before(t, j) * cosine;
        const double across = lower ? -before(t, j + half) * sine : before(t, j - half) * sine;
        return Expected{straight + across, float_error(3, std::abs(straight) + std::abs(across))};
      });
    }
  }
}

}  // namespace skrull
