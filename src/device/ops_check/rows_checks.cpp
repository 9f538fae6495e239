// Rows by index, and sums over rows: embedding, gather, scatter, bias.

#include <cmath>

#include "ops_check/check_case.h"
#include "skrull/core/rng.h"

namespace skrull {

namespace {

/// `count` row numbers below `bound`, many of them more than once.
HostMatrix random_rows(std::int64_t count, std::int64_t bound) {
  HostMatrix rows(DType::int32, 1, count);
  Rng rng(3, "rows");
  rows.fill(
      [&](std::int64_t, std::int64_t) { return static_cast<double>(rng.below(static_cast<std::uint64_t>(bound))); });
  return rows;
}

/// `count` row numbers below `bound`, each at most once.
HostMatrix distinct_rows(std::int64_t count, std::int64_t bound) {
  std::vector<std::int32_t> all(static_cast<std::size_t>(bound));
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<std::int32_t>(i);
  Rng(4, "rows").shuffle(all);
  HostMatrix rows(DType::int32, 1, count);
  rows.fill([&](std::int64_t, std::int64_t i) { return all[static_cast<std::size_t>(i)]; });
  return rows;
}

std::int64_t row_at(const HostMatrix& rows, std::int64_t i) {
  return static_cast<std::int64_t>(rows(0, i));
}

/// The dtypes whose rows are moved: the compute dtype and, beside fp32, whole numbers.
std::vector<DType> moved_dtypes(DType compute_dtype) {
  if (compute_dtype == DType::float32) return {DType::float32, DType::int32};
  return {compute_dtype};
}

constexpr std::int64_t vocabulary = 11;

}  // namespace

void check_embedding_forward(CheckContext& context) {
  for (const CheckLayout& layout : check_layouts(context)) {
    CheckCase c(context, layout.describe());
    const HostMatrix ids = random_rows(layout.rows, vocabulary);
    const HostMatrix table = HostMatrix::random(context.dtype, vocabulary, layout.cols, "table", 1, layout.padding);
    const ConstTensorView ids_view = c.input(ids);
    const ConstTensorView table_view = c.input(table);
    auto& out = c.result("out", layout.random(context.dtype, "old out"));
    c.run([&](Ops& ops, Stream& stream) { ops.embedding_forward(stream, ids_view, table_view, out.view()); });
    c.expect(out, [&](std::int64_t t, std::int64_t j) { return Expected{table(row_at(ids, t), j)}; });
  }
}

void check_embedding_backward(CheckContext& context) {
  for (const CheckLayout& layout : check_layouts(context)) {
    CheckCase c(context, layout.describe());
    const HostMatrix ids = random_rows(layout.rows, vocabulary);
    const HostMatrix dout = layout.random(context.dtype, "dout");
    const HostMatrix before = HostMatrix::random(DType::float32, vocabulary, layout.cols, "dtable", 1, layout.padding);
    const ConstTensorView ids_view = c.input(ids);
    const ConstTensorView dout_view = c.input(dout);
    auto& dtable = c.result("dtable", before);
    c.run([&](Ops& ops, Stream& stream) { ops.embedding_backward(stream, ids_view, dout_view, dtable.view()); });
    // In token order, in fp32: exactly this.
    c.expect(dtable, [&](std::int64_t row, std::int64_t j) {
      auto sum = static_cast<float>(before(row, j));
      for (std::int64_t t = 0; t < layout.rows; ++t) {
        if (row_at(ids, t) == row) sum += static_cast<float>(dout(t, j));
      }
      return Expected{sum};
    });
  }
}

void check_bias_backward(CheckContext& context) {
  for (const CheckLayout& layout : check_layouts(context)) {
    CheckCase c(context, layout.describe());
    const HostMatrix dy = layout.random(context.dtype, "dy");
    const HostMatrix before = HostMatrix::random(DType::float32, 1, layout.cols, "dbias", 1, 0, layout.offset);
    const ConstTensorView dy_view = c.input(dy);
    auto& dbias = c.result("dbias", before);
    c.run([&](Ops& ops, Stream& stream) { ops.bias_backward(stream, dy_view, dbias.view()); });
    c.expect(dbias, [&](std::int64_t, std::int64_t j) {
      double value = before(0, j);
      double size = std::abs(value);
      for (std::int64_t t = 0; t < layout.rows; ++t) {
        value += dy(t, j);
        size += std::abs(dy(t, j));
      }
      return Expected{value, sum_error(layout.rows + 1, size)};
    });
  }
}

void check_gather_rows(CheckContext& context) {
  constexpr std::int64_t source_rows = 17;
  for (const DType dtype : moved_dtypes(context.dtype)) {
    for (const CheckLayout& layout : check_layouts(context)) {
      CheckCase c(context, layout.describe() + " of " + std::string(name_of(dtype)));
      const HostMatrix rows = random_rows(layout.rows, source_rows);
      const HostMatrix source =
          HostMatrix::random(dtype, source_rows, layout.cols, "source", 30, layout.padding, layout.offset);
      const ConstTensorView rows_view = c.input(rows);
      const ConstTensorView source_view = c.input(source);
      auto& target = c.result("target", HostMatrix::random(dtype, layout.rows, layout.cols, "old", 30, 1));
      c.run([&](Ops& ops, Stream& stream) { ops.gather_rows(stream, source_view, rows_view, target.view()); });
      c.expect(target, [&](std::int64_t i, std::int64_t j) { return Expected{source(row_at(rows, i), j)}; });
    }
  }
}

void check_scatter_rows(CheckContext& context) {
  for (const DType dtype : moved_dtypes(context.dtype)) {
    for (const CheckLayout& layout : check_layouts(context)) {
      CheckCase c(context, layout.describe() + " of " + std::string(name_of(dtype)));
      const std::int64_t target_rows = layout.rows + 3;
      const HostMatrix rows = distinct_rows(layout.rows, target_rows);
      const HostMatrix source = layout.random(dtype, "source", 30);
      HostMatrix expected = HostMatrix::random(dtype, target_rows, layout.cols, "target", 30, layout.padding);
      const ConstTensorView rows_view = c.input(rows);
      const ConstTensorView source_view = c.input(source);
      auto& target = c.result("target", expected);
      c.run([&](Ops& ops, Stream& stream) { ops.scatter_rows(stream, source_view, rows_view, target.view()); });
      for (std::int64_t i = 0; i < layout.rows; ++i) {
        for (std::int64_t j = 0; j < layout.cols; ++j) expected.set(row_at(rows, i), j, source(i, j));
      }
      c.expect(target, [&](std::int64_t i, std::int64_t j) { return Expected{expected(i, j)}; });
    }
  }
}

}  // namespace skrull
