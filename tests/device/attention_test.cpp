#include "cpu/attention.h"

#include <omp.h>

#include <algorithm>
#include <limits>
#include <string>

#include "attention_reference.h"
#include "support/catch.h"

using namespace skrull;
using test::Matrix;

namespace {

/// With one key dq and dk are 0: what is left is the rounding of dout.v - dout.out, summed over the rows.
constexpr double one_key_tolerance = 5e-5;
constexpr float minus_infinity = -std::numeric_limits<float>::infinity();

AttentionShape shape_of(std::int64_t heads, std::int64_t kv_heads, std::int64_t head_dim) {
  return {heads, kv_heads, head_dim, static_cast<float>(1 / std::sqrt(static_cast<double>(head_dim)))};
}

/// Whole causal sequences of these lengths, back to back.
std::vector<AttentionSegment> packed(const std::vector<std::int64_t>& lengths) {
  std::vector<AttentionSegment> segments;
  std::int64_t begin = 0;
  for (const std::int64_t length : lengths) {
    segments.push_back({begin, length, begin, length, true});
    begin += length;
  }
  return segments;
}

/// Inputs of one problem.
struct Inputs {
  Inputs(const AttentionShape& shape, std::int64_t queries, std::int64_t keys, DType dtype = DType::float32,
         double size = 1)
      : q(Matrix::random(queries, shape.num_heads * shape.head_dim, dtype, 1, size)),
        k(Matrix::random(keys, shape.num_kv_heads * shape.head_dim, dtype, 2, size)),
        v(Matrix::random(keys, shape.num_kv_heads * shape.head_dim, dtype, 3)),
        dout(Matrix::random(queries, shape.num_heads * shape.head_dim, dtype, 4)) {}
  Matrix q, k, v, dout;
};

struct Views {
  Views(const Inputs& inputs) : q(inputs.q.view()), k(inputs.k.view()), v(inputs.v.view()), dout(inputs.dout.view()) {}
  ConstTensorView q, k, v, dout;
};

struct Forward {
  Matrix out, lse;
};
struct Gradients {
  Matrix dq, dk, dv;
  bool operator==(const Gradients& other) const { return dq == other.dq && dk == other.dk && dv == other.dv; }
};

/// What rows that see no key hold.
Forward empty_forward(const AttentionShape& shape, std::int64_t rows, DType out_dtype = DType::float32) {
  Forward result{Matrix(rows, shape.num_heads * shape.head_dim, out_dtype), Matrix(rows, shape.num_heads)};
  for (std::int64_t i = 0; i < rows * shape.num_heads; ++i) result.lse.set(i, minus_infinity);
  return result;
}

Forward forward(const AttentionShape& shape, std::span<const AttentionSegment> segments, const Views& x,
                DType out_dtype = DType::float32) {
  Forward result = empty_forward(shape, x.q.rows(), out_dtype);
  cpu_attention_forward({shape, segments, x.q, x.k, x.v, result.out.view(), result.lse.view()});
  return result;
}

Gradients zero_gradients(const Views& x) {
  return {Matrix(x.q.rows(), x.q.cols()), Matrix(x.k.rows(), x.k.cols()), Matrix(x.k.rows(), x.k.cols())};
}

Matrix delta_of(const AttentionShape& shape, const Views& x, const Forward& whole) {
  Matrix delta(x.q.rows(), shape.num_heads);
  cpu_attention_delta(shape.head_dim, whole.out.view(), x.dout, delta.view());
  return delta;
}

void add_backward(const AttentionShape& shape, std::span<const AttentionSegment> segments, const Views& x,
                  const Forward& whole, Gradients& gradients) {
  const Matrix delta = delta_of(shape, x, whole);
  cpu_attention_backward({shape, segments, x.q, x.k, x.v, whole.out.view(), x.dout, whole.lse.view(), delta.view(),
                          gradients.dq.view(), gradients.dk.view(), gradients.dv.view()});
}

Gradients backward(const AttentionShape& shape, std::span<const AttentionSegment> segments, const Views& x,
                   const Forward& whole) {
  Gradients gradients = zero_gradients(x);
  add_backward(shape, segments, x, whole, gradients);
  return gradients;
}

void check_against_reference(const AttentionShape& shape, std::span<const AttentionSegment> segments, const Views& x,
                             double tolerance = 1e-6) {
  const auto expected = attention_reference(shape, segments, x.q, x.k, x.v, x.dout);
  const Forward result = forward(shape, segments, x);
  CHECK(test::relative_error(result.out.view(), expected.out) < tolerance);
  CHECK(test::relative_error(result.lse.view(), expected.lse) < tolerance);
  const Gradients gradients = backward(shape, segments, x, result);
  CHECK(test::relative_error(gradients.dq.view(), expected.dq) < 2 * tolerance);
  CHECK(test::relative_error(gradients.dk.view(), expected.dk) < 2 * tolerance);
  CHECK(test::relative_error(gradients.dv.view(), expected.dv) < 2 * tolerance);
}

/// Joins a second result into the first, as ring attention does.
void merge(const AttentionShape& shape, const Forward& partial, Forward& whole) {
  cpu_attention_merge(shape.head_dim, partial.out.view(), partial.lse.view(), whole.out.view(), whole.lse.view());
}

}  // namespace

TEST_CASE("attention agrees with the definition for every head size and head ratio") {
  const auto [heads, kv_heads] = GENERATE(table<std::int64_t, std::int64_t>({{2, 2}, {4, 1}, {14, 2}, {10, 2}}));
  const std::int64_t head_dim = GENERATE(16, 33, 64, 80, 128, 144);
  const AttentionShape shape = shape_of(heads, kv_heads, head_dim);
  const auto segments = packed({1, 40, 2, 230});
  INFO(heads << "/" << kv_heads << " heads of " << head_dim);
  check_against_reference(shape, segments, Inputs(shape, 273, 273));
}

TEST_CASE("attention agrees with the definition for every length around the block sizes") {
  const AttentionShape shape = shape_of(3, 1, 16);
  for (const std::int64_t length : {1, 2, 5, 13, 14, 15, 31, 32, 33, 111, 112, 113, 223, 224, 225, 449, 700}) {
    INFO("length " << length);
    check_against_reference(shape, packed({length}), Inputs(shape, length, length),
                            length == 1 ? one_key_tolerance : 1e-6);
  }
}

TEST_CASE("queries and keys of different numbers, causal at the ends or full") {
  const AttentionShape shape = shape_of(4, 2, 24);
  const bool causal = GENERATE(false, true);
  for (const auto& [queries, keys] : std::vector<std::pair<std::int64_t, std::int64_t>>{
           {1, 500}, {7, 300}, {300, 7}, {230, 460}, {460, 230}, {500, 1}, {20, 0}}) {
    INFO((causal ? "causal " : "full ") << queries << " x " << keys);
    // Rows before and behind the segment belong to nobody.
    const std::vector<AttentionSegment> segments{{3, queries, 5, keys, causal}};
    check_against_reference(shape, segments, Inputs(shape, queries + 4, keys + 9),
                            keys == 1 ? one_key_tolerance : 1e-6);
  }
}

TEST_CASE("rows without keys are 0 with log-sum-exp -infinity and leave no trace in the gradients") {
  const AttentionShape shape = shape_of(4, 2, 16);
  const Inputs x(shape, 40, 10);
  const std::vector<AttentionSegment> segments{{0, 40, 0, 10, true}};
  const Forward result = forward(shape, segments, x);
  for (std::int64_t i = 0; i < 30; ++i) {
    for (std::int64_t h = 0; h < 4; ++h) CHECK(result.lse.at(i, h) == minus_infinity);
    for (std::int64_t c = 0; c < 64; ++c) CHECK(result.out.at(i, c) == 0);
  }
  CHECK(std::isfinite(result.lse.at(30, 0)));
  const Gradients gradients = backward(shape, segments, x, result);
  for (std::int64_t i = 0; i < 30 * 64; ++i) CHECK(gradients.dq.get(i) == 0);
  for (const double value : values_of(gradients.dk.view())) CHECK(std::isfinite(value));
}

TEST_CASE("a call with no segments or empty ones does nothing") {
  const AttentionShape shape = shape_of(2, 1, 16);
  const Inputs x(shape, 5, 5);
  const std::vector<AttentionSegment> segments{{0, 0, 0, 0, true}, {2, 0, 1, 3, true}};
  const Forward result = forward(shape, segments, x);
  CHECK(result.out == Matrix(5, 32));
  CHECK(backward(shape, {}, x, result) == zero_gradients(Views(x)));
}

TEST_CASE("views may be slices of a fused buffer") {
  const AttentionShape shape = shape_of(6, 2, 40);
  const auto segments = packed({100, 57});
  const DType dtype = GENERATE(DType::float32, DType::bfloat16);
  const Matrix fused = Matrix::random(157, (6 + 2 + 2) * 40, dtype, 9);
  const Matrix dout = Matrix::random(157, 6 * 40 + 3, dtype, 10);
  const Inputs any(shape, 0, 0);
  Views x(any);
  x.q = fused.view().slice_cols(0, 240);
  x.k = fused.view().slice_cols(240, 80);
  x.v = fused.view().slice_cols(320, 80);
  x.dout = dout.view().slice_cols(3, 240);
  check_against_reference(shape, segments, x);

  // Outputs and gradients in slices too; nothing beside them changes.
  const Forward dense = forward(shape, segments, x);
  Matrix out(157, 300);
  Matrix lse(157, 9);
  cpu_attention_forward({shape, segments, x.q, x.k, x.v, out.view().slice_cols(7, 240), lse.view().slice_cols(2, 6)});
  Matrix gradients(157, 400);
  const Matrix delta = delta_of(shape, x, dense);
  cpu_attention_backward({shape, segments, x.q, x.k, x.v, dense.out.view(), x.dout, lse.view().slice_cols(2, 6),
                          delta.view(), gradients.view().slice_cols(0, 240), gradients.view().slice_cols(240, 80),
                          gradients.view().slice_cols(320, 80)});
  const Gradients expected = backward(shape, segments, x, dense);
  for (std::int64_t row = 0; row < 157; ++row) {
    for (std::int64_t col = 0; col < 300; ++col)
      REQUIRE(out.at(row, col) == (col >= 7 && col < 247 ? dense.out.at(row, col - 7) : 0));
    for (std::int64_t col = 0; col < 400; ++col)
      REQUIRE(gradients.at(row, col) == (col < 240   ? expected.dq.at(row, col)
                                         : col < 320 ? expected.dk.at(row, col - 240)
                                                     : expected.dv.at(row, col - 320)));
  }
}

TEST_CASE("bfloat16 inputs are computed in fp32 and the output rounded once") {
  const AttentionShape shape = shape_of(14, 2, 64);
  const auto segments = packed({90, 33, 160});
  const Inputs x(shape, 283, 283, DType::bfloat16);
  check_against_reference(shape, segments, x);
  const Forward exact = forward(shape, segments, x);
  const Forward rounded = forward(shape, segments, x, DType::bfloat16);
  CHECK(rounded.lse == exact.lse);
  for (std::int64_t i = 0; i < 283 * 14 * 64; ++i)
    REQUIRE(rounded.out.get(i) == static_cast<float>(bfloat16(exact.out.get(i))));
}

TEST_CASE("gradients are added to what is there") {
  const AttentionShape shape = shape_of(4, 2, 32);
  const auto segments = packed({50, 20});
  const Inputs x(shape, 70, 70);
  const Forward result = forward(shape, segments, x);
  const Gradients once = backward(shape, segments, x, result);
  Gradients twice = once;
  add_backward(shape, segments, x, result, twice);
  for (std::int64_t i = 0; i < 70 * 128; ++i) REQUIRE(twice.dq.get(i) == 2 * once.dq.get(i));
  for (std::int64_t i = 0; i < 70 * 64; ++i) REQUIRE(twice.dk.get(i) == 2 * once.dk.get(i));
  for (std::int64_t i = 0; i < 70 * 64; ++i) REQUIRE(twice.dv.get(i) == 2 * once.dv.get(i));
}

TEST_CASE("scores up to 1e4 are stable") {
  const AttentionShape shape = shape_of(2, 1, 64);
  const auto segments = packed({150});
  const Inputs x(shape, 150, 150, DType::float32, 60);  // scale q.k has a standard deviation of 3600, its maximum > 1e4
  const auto expected = attention_reference(shape, segments, x.q.view(), x.k.view(), x.v.view(), x.dout.view());
  REQUIRE(*std::max_element(expected.lse.begin(), expected.lse.end()) > 1e4);
  const Forward result = forward(shape, segments, x);
  // fp32 scores of 1e4 have an absolute error of 1e-3, which is the relative error of the weights.
  CHECK(test::relative_error(result.out.view(), expected.out) < 5e-3);
  CHECK(test::relative_error(result.lse.view(), expected.lse) < 1e-6);
  const Gradients gradients = backward(shape, segments, x, result);
  CHECK(test::relative_error(gradients.dq.view(), expected.dq) < 5e-3);
  CHECK(test::relative_error(gradients.dk.view(), expected.dk) < 5e-3);
  CHECK(test::relative_error(gradients.dv.view(), expected.dv) < 5e-3);
}

TEST_CASE("delta is the sum of out * dout over each head, dtypes mixed") {
  const std::int64_t head_dim = GENERATE(16, 33);
  const Matrix out = Matrix::random(9, 3 * head_dim, DType::float32, 5);
  const Matrix dout = Matrix::random(9, 3 * head_dim, GENERATE(DType::float32, DType::bfloat16), 6);
  Matrix delta(9, 3);
  cpu_attention_delta(head_dim, out.view(), dout.view(), delta.view());
  for (std::int64_t row = 0; row < 9; ++row) {
    for (std::int64_t head = 0; head < 3; ++head) {
      double expected = 0;
      for (std::int64_t i = head * head_dim; i < (head + 1) * head_dim; ++i)
        expected += double{out.at(row, i)} * double{dout.at(row, i)};
      CHECK(delta.at(row, head) == Approx(expected).epsilon(1e-5).margin(1e-5));
    }
  }
}

TEST_CASE("partial results over pieces of the keys merge to the whole, and their gradients add up to it") {
  const AttentionShape shape = shape_of(4, 2, 48);
  const Inputs x(shape, 180, 300);
  const std::vector<AttentionSegment> whole{{0, 180, 0, 300, false}};
  const auto expected = attention_reference(shape, whole, x.q.view(), x.k.view(), x.v.view(), x.dout.view());
  const std::vector<std::int64_t> cuts =
      GENERATE(std::vector<std::int64_t>{0, 131, 300}, std::vector<std::int64_t>{0, 1, 250, 300},
               std::vector<std::int64_t>{0, 60, 60, 300});
  Forward joined = empty_forward(shape, 180);
  std::vector<AttentionSegment> pieces;
  for (std::size_t i = 0; i + 1 < cuts.size(); ++i) pieces.push_back({0, 180, cuts[i], cuts[i + 1] - cuts[i], false});
  for (const AttentionSegment& piece : pieces) merge(shape, forward(shape, {&piece, 1}, x), joined);
  // Each merge rounds once more than one pass over all keys does.
  CHECK(test::relative_error(joined.out.view(), expected.out) < 2e-6);
  CHECK(test::relative_error(joined.lse.view(), expected.lse) < 1e-6);
  Gradients sum = zero_gradients(x);
  for (const AttentionSegment& piece : pieces) add_backward(shape, {&piece, 1}, x, joined, sum);
  CHECK(test::relative_error(sum.dq.view(), expected.dq) < 2e-6);
  CHECK(test::relative_error(sum.dk.view(), expected.dk) < 2e-6);
  CHECK(test::relative_error(sum.dv.view(), expected.dv) < 2e-6);
}

TEST_CASE("merge is stable at distant log-sum-exps and harmless where both sides are empty") {
  const auto merged = [](float out, float lse, float partial_out, float partial_lse) {
    Matrix a(1, 1);
    Matrix b(1, 1);
    Matrix c(1, 1);
    Matrix d(1, 1);
    a.set(0, out);
    b.set(0, lse);
    c.set(0, partial_out);
    d.set(0, partial_lse);
    cpu_attention_merge(1, c.view(), d.view(), a.view(), b.view());
    return std::pair{a.get(0), b.get(0)};
  };
  using Result = std::pair<float, float>;
  CHECK(merged(3, 0, 7, 1e4F) == Result{7, 1e4F});
  CHECK(merged(3, 0, 7, -1e4F) == Result{3, 0});
  CHECK(merged(3, 1e4F, 7, 0) == Result{3, 1e4F});
  CHECK(merged(3, -1e4F, 7, 0) == Result{7, 0});
  CHECK(merged(3, 2, 0, minus_infinity) == Result{3, 2});
  CHECK(merged(0, minus_infinity, 7, -5) == Result{7, -5});
  CHECK(merged(0, minus_infinity, 0, minus_infinity) == Result{0, minus_infinity});
  const auto [out, lse] = merged(1, 1e4F, 2, 1e4F);
  CHECK(out == 1.5F);
  CHECK(lse == Approx(1e4 + std::log(2.0)).epsilon(1e-7));
  // exp(1) : exp(0)
  CHECK(merged(1, 1, 2, 0).first == Approx((std::exp(1.0) + 2) / (std::exp(1.0) + 1)));
}

// A sequence cut into 2r chunks, the first S mod 2r of them one longer; ring position i holds chunks i and 2r-1-i. Own
// shard: causal. A source earlier in the ring: all queries x its first chunk. A later source: second query chunk x
// both.
TEST_CASE("a zigzag ring gives the whole sequence's result and gradients") {
  const std::int64_t ranks = GENERATE(2, 3);
  const std::int64_t length = GENERATE(401, 96, 7);
  const AttentionShape shape = shape_of(4, 2, 32);
  const Inputs x(shape, length, length);
  const auto segments = packed({length});
  const auto expected = attention_reference(shape, segments, x.q.view(), x.k.view(), x.v.view(), x.dout.view());

  std::vector<std::int64_t> chunk(static_cast<std::size_t>(2 * ranks + 1));
  for (std::int64_t c = 0; c < 2 * ranks; ++c)
    chunk[static_cast<std::size_t>(c + 1)] =
        chunk[static_cast<std::size_t>(c)] + length / (2 * ranks) + (c < length % (2 * ranks));
  const auto size = [&](std::int64_t c) {
    return chunk[static_cast<std::size_t>(c + 1)] - chunk[static_cast<std::size_t>(c)];
  };
  // Rows of a position's shard in the whole sequence.
  const auto shard_rows = [&](std::int64_t position) {
    std::vector<std::int64_t> rows;
    for (const std::int64_t c : {position, 2 * ranks - 1 - position})
      for (std::int64_t i = 0; i < size(c); ++i) rows.push_back(chunk[static_cast<std::size_t>(c)] + i);
    return rows;
  };
  const auto take = [](const Matrix& from, const std::vector<std::int64_t>& rows) {
    Matrix result(static_cast<std::int64_t>(rows.size()), from.cols());
    for (std::int64_t i = 0; i < result.rows(); ++i)
      for (std::int64_t c = 0; c < from.cols(); ++c)
        result.set(i * from.cols() + c, from.at(rows[static_cast<std::size_t>(i)], c));
    return result;
  };
  const auto give = [](const Matrix& from, const std::vector<std::int64_t>& rows, Matrix& into) {
    for (std::int64_t i = 0; i < from.rows(); ++i)
      for (std::int64_t c = 0; c < from.cols(); ++c) {
        const std::int64_t at = rows[static_cast<std::size_t>(i)] * from.cols() + c;
        into.set(at, into.get(at) + from.at(i, c));
      }
  };

  Forward whole{Matrix(length, 128), Matrix(length, 4)};
  Gradients gradients = zero_gradients(x);
  for (std::int64_t me = 0; me < ranks; ++me) {
    const auto my_rows = shard_rows(me);
    const auto shard = static_cast<std::int64_t>(my_rows.size());
    const Matrix q = take(x.q, my_rows);
    const Matrix dout = take(x.dout, my_rows);
    const auto hop = [&](std::int64_t source) -> AttentionSegment {
      const auto keys = static_cast<std::int64_t>(shard_rows(source).size());
      if (source == me) return {0, shard, 0, keys, true};
      if (source < me) return {0, shard, 0, size(source), false};
      return {size(me), shard - size(me), 0, keys, false};
    };
    const auto views = [&](const Matrix& k, const Matrix& v) {
      Views result(x);
      result.q = q.view();
      result.dout = dout.view();
      result.k = k.view();
      result.v = v.view();
      return result;
    };
    Forward mine = empty_forward(shape, shard);
    for (std::int64_t source = 0; source < ranks; ++source) {
      const Matrix k = take(x.k, shard_rows(source));
      const Matrix v = take(x.v, shard_rows(source));
      const AttentionSegment segment = hop(source);
      merge(shape, forward(shape, {&segment, 1}, views(k, v)), mine);
    }
    give(mine.out, my_rows, whole.out);
    give(mine.lse, my_rows, whole.lse);
    for (std::int64_t source = 0; source < ranks; ++source) {
      const Matrix k = take(x.k, shard_rows(source));
      const Matrix v = take(x.v, shard_rows(source));
      const AttentionSegment segment = hop(source);
      const Gradients partial = backward(shape, {&segment, 1}, views(k, v), mine);
      give(partial.dq, my_rows, gradients.dq);
      give(partial.dk, shard_rows(source), gradients.dk);
      give(partial.dv, shard_rows(source), gradients.dv);
    }
  }
  CHECK(test::relative_error(whole.out.view(), expected.out) < 1e-6);
  CHECK(test::relative_error(whole.lse.view(), expected.lse) < 1e-6);
  CHECK(test::relative_error(gradients.dq.view(), expected.dq) < 2e-6);
  CHECK(test::relative_error(gradients.dk.view(), expected.dk) < 2e-6);
  CHECK(test::relative_error(gradients.dv.view(), expected.dv) < 2e-6);
}

TEST_CASE("no bit depends on the number of threads") {
  const AttentionShape shape = shape_of(14, 2, 64);
  const auto segments = packed({1, 600, 30, 300, 77});
  const Inputs x(shape, 1008, 1008);
  const int threads = omp_get_max_threads();
  omp_set_num_threads(1);
  const Forward one = forward(shape, segments, x);
  const Gradients one_gradients = backward(shape, segments, x, one);
  for (const int count : {2, 3, 7}) {
    omp_set_num_threads(count);
    const Forward several = forward(shape, segments, x);
    CHECK(several.out == one.out);
    CHECK(several.lse == one.lse);
    CHECK(backward(shape, segments, x, one) == one_gradients);
  }
  omp_set_num_threads(threads);
}

TEST_CASE("a token changes no bit of another segment, nor of rows before it") {
  const AttentionShape shape = shape_of(7, 1, 64);
  const auto segments = packed({40, 260, 31});
  const Inputs x(shape, 331, 331);
  const Forward before = forward(shape, segments, x);
  const Gradients gradients_before = backward(shape, segments, x, before);
  const std::int64_t token = 40 + 100;
  Inputs y = x;
  for (Matrix* matrix : {&y.q, &y.k, &y.v, &y.dout})
    for (std::int64_t c = 0; c < matrix->cols(); ++c)
      matrix->set(token * matrix->cols() + c, 50 + matrix->at(token, c));
  const Forward after = forward(shape, segments, y);
  const Gradients gradients_after = backward(shape, segments, y, after);
  const auto same_row = [](const Matrix& a, const Matrix& b, std::int64_t row) {
    for (std::int64_t c = 0; c < a.cols(); ++c)
      if (a.at(row, c) != b.at(row, c)) return false;
    return true;
  };
  for (std::int64_t row = 0; row < 331; ++row) {
    const bool other_segment = row < 40 || row >= 300;
    INFO("row " << row);
    REQUIRE(same_row(before.out, after.out, row) == (row < token || other_segment));
    REQUIRE(same_row(before.lse, after.lse, row) == (row < token || other_segment));
    REQUIRE(same_row(gradients_before.dq, gradients_after.dq, row) == (row < token || other_segment));
    REQUIRE(same_row(gradients_before.dk, gradients_after.dk, row) == other_segment);
    REQUIRE(same_row(gradients_before.dv, gradients_after.dv, row) == other_segment);
  }
}

TEST_CASE("a sequence has the same bits alone and packed") {
  const AttentionShape shape = shape_of(14, 2, 64);
  const Inputs x(shape, 500, 500);
  const auto segments = packed({100, 333, 67});
  const Forward together = forward(shape, segments, x);
  const Gradients gradients = backward(shape, segments, x, together);
  const Forward alone = forward(shape, {&segments[1], 1}, x);
  const Gradients alone_gradients = backward(shape, {&segments[1], 1}, x, together);
  for (std::int64_t row = 100; row < 433; ++row) {
    for (std::int64_t c = 0; c < 14 * 64; ++c) {
      REQUIRE(alone.out.at(row, c) == together.out.at(row, c));
      REQUIRE(alone_gradients.dq.at(row, c) == gradients.dq.at(row, c));
    }
    for (std::int64_t c = 0; c < 2 * 64; ++c) {
      REQUIRE(alone_gradients.dk.at(row, c) == gradients.dk.at(row, c));
      REQUIRE(alone_gradients.dv.at(row, c) == gradients.dv.at(row, c));
    }
  }
}

TEST_CASE("inputs that do not fit together are refused with their values") {
  const AttentionShape shape = shape_of(4, 2, 16);
  const Inputs x(shape, 20, 20);
  const auto refused = [&](const AttentionShape& with, const std::vector<AttentionSegment>& segments) {
    CHECK_THROWS_AS(forward(with, segments, x), RunFailure);
  };
  refused(shape, {{0, 21, 0, 20, true}});
  refused(shape, {{0, 20, 1, 20, true}});
  refused(shape, {{0, 10, 0, 10, true}, {9, 5, 10, 5, true}});
  refused(shape_of(4, 3, 16), packed({20}));
  refused(shape_of(4, 2, 15), packed({20}));
  const std::vector<AttentionSegment> shared_keys{{0, 10, 0, 10, true}, {10, 10, 5, 10, true}};
  const Forward result = forward(shape, shared_keys, x);
  CHECK_THROWS_AS(backward(shape, shared_keys, x, result), RunFailure);
}

TEST_CASE("scratch memory does not grow with the length") {
  CHECK(cpu_attention_scratch_bytes(shape_of(14, 2, 64)) < 1 << 20);
  CHECK(cpu_attention_scratch_bytes(shape_of(28, 4, 128)) < 2 << 20);
}
