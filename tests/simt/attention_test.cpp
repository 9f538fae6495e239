// The attention kernels of the CUDA device, run on the host, against the definition in fp64 and against each other.

#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "attention_reference.h"
#include "cpu/cpu_ops.h"
#include "host_device.h"
#include "ops/native_attention.h"
#include "simt/kernel_coverage.h"
#include "simt/seeds.h"
#include "skrull/device/ops_check.h"
#include "support/catch.h"

using namespace skrull;
using test::Matrix;

namespace {

/// The kernels as a device's operations, run at once.
class NativeAttention final : public CpuOps {
 public:
  NativeAttention() : CpuOps(1, caller_stream()) {}
  void attention_forward(Stream& /*stream*/, const AttentionForward& a) override {
    attention::native_forward(nullptr, a);
  }
  void attention_backward(Stream& /*stream*/, const AttentionBackward& a) override {
    attention::native_backward(nullptr, a);
  }
  void attention_merge(Stream& /*stream*/, std::int64_t head_dim, ConstTensorView partial_out,
                       ConstTensorView partial_lse, TensorView out, TensorView lse) override {
    attention::merge(nullptr, head_dim, partial_out, partial_lse, out, lse);
  }
  void attention_delta(Stream& /*stream*/, std::int64_t head_dim, ConstTensorView out, ConstTensorView dout,
                       TensorView delta) override {
    attention::delta(nullptr, head_dim, out, dout, delta);
  }
};

constexpr float minus_infinity = -std::numeric_limits<float>::infinity();

AttentionShape shape_of(std::int64_t heads, std::int64_t kv_heads, std::int64_t head_dim) {
  return {heads, kv_heads, head_dim, static_cast<float>(1 / std::sqrt(static_cast<double>(head_dim)))};
}

struct Inputs {
  Inputs(const AttentionShape& shape, std::int64_t queries, std::int64_t keys, DType dtype)
      : q(Matrix::random(queries, shape.num_heads * shape.head_dim, dtype, 1)),
        k(Matrix::random(keys, shape.num_kv_heads * shape.head_dim, dtype, 2)),
        v(Matrix::random(keys, shape.num_kv_heads * shape.head_dim, dtype, 3)),
        dout(Matrix::random(queries, shape.num_heads * shape.head_dim, dtype, 4)) {}
  Matrix q, k, v, dout;
};

struct Result {
  Matrix out, lse, dq, dk, dv;
  bool operator==(const Result& other) const {
    return out == other.out && lse == other.lse && dq == other.dq && dk == other.dk && dv == other.dv;
  }
};

/// Forward, delta and backward of pieces whose forwards are merged; the gradients add up.
Result attention_of(const AttentionShape& shape, const std::vector<std::vector<AttentionSegment>>& pieces,
                    const Inputs& x) {
  const std::int64_t width = shape.num_heads * shape.head_dim;
  Result r{Matrix(x.q.rows(), width), Matrix(x.q.rows(), shape.num_heads), Matrix(x.q.rows(), width),
           Matrix(x.k.rows(), x.k.cols()), Matrix(x.k.rows(), x.k.cols())};
  for (std::int64_t i = 0; i < r.lse.rows() * r.lse.cols(); ++i) r.lse.set(i, minus_infinity);
  for (const auto& piece : pieces) {
    Matrix out(x.q.rows(), width);
    Matrix lse(x.q.rows(), shape.num_heads);
    for (std::int64_t i = 0; i < lse.rows() * lse.cols(); ++i) lse.set(i, minus_infinity);
    attention::native_forward(nullptr, {shape, piece, x.q.view(), x.k.view(), x.v.view(), out.view(), lse.view()});
    attention::merge(nullptr, shape.head_dim, out.view(), lse.view(), r.out.view(), r.lse.view());
  }
  Matrix delta(x.q.rows(), shape.num_heads);
  attention::delta(nullptr, shape.head_dim, r.out.view(), x.dout.view(), delta.view());
  for (const auto& piece : pieces) {
    attention::native_backward(nullptr, {shape, piece, x.q.view(), x.k.view(), x.v.view(), r.out.view(), x.dout.view(),
                                         r.lse.view(), delta.view(), r.dq.view(), r.dk.view(), r.dv.view()});
  }
  return r;
}

/// bf16 rounds each weight and each score gradient once, by up to 2^-9 of itself, before they are summed; errors of
/// sums of many of them stay below a few times that, relative to the largest sum.
double tolerance_of(DType dtype) {
  return dtype == DType::bfloat16 ? 4 * 0x1p-9 : 4e-6;
}

void check_against_definition(const AttentionShape& shape, const std::vector<std::vector<AttentionSegment>>& pieces,
                              const std::vector<AttentionSegment>& whole, const Inputs& x) {
  const AttentionReference expected =
      attention_reference(shape, whole, x.q.view(), x.k.view(), x.v.view(), x.dout.view());
  const Result result = attention_of(shape, pieces, x);
  const double tolerance = tolerance_of(x.q.view().dtype());
  CHECK(test::relative_error(result.out.view(), expected.out.values) < tolerance);
  CHECK(test::relative_error(result.lse.view(), expected.lse) < 4e-6);
  CHECK(test::relative_error(result.dq.view(), expected.dq.values) < tolerance);
  CHECK(test::relative_error(result.dk.view(), expected.dk.values) < tolerance);
  CHECK(test::relative_error(result.dv.view(), expected.dv.values) < tolerance);
}

}  // namespace

TEST_CASE("attention kernels pass the check of operations") {
  NativeAttention ops;
  test::HostDevice device(ops);
  OpsCheckOptions options;
  options.operations = {GENERATE("attention_forward", "attention_backward", "attention_merge", "attention_delta")};
  options.dtypes = {GENERATE(DType::float32, DType::bfloat16)};
  options.small_shapes_only = true;
  const auto check_all = [&] {
    const std::vector<OpCheck> checks = check_ops(device, options);
    CHECK(checks.size() > 4);
    for (const OpCheck& check : checks) {
      INFO(to_string(check));
      CHECK(check.passed());
    }
  };
  test::under_each_seed(check_all, test::few_orders);
}

TEST_CASE("lengths around the tiles under several orders of threads") {
  const DType dtype = GENERATE(DType::float32, DType::bfloat16);
  const std::int64_t head_dim = GENERATE(64, 128);
  const AttentionShape shape = shape_of(2, 1, head_dim);
  std::vector<AttentionSegment> segments;
  std::int64_t begin = 0;
  for (const std::int64_t length : {31, 129, 64}) {
    segments.push_back({begin, length, begin, length, true});
    begin += length;
  }
  const Inputs x(shape, begin, begin, dtype);
  test::under_each_seed([&] { check_against_definition(shape, {segments}, segments, x); }, test::few_orders);
}

TEST_CASE("seven query heads share a key-value head") {
  const DType dtype = GENERATE(DType::float32, DType::bfloat16);
  const AttentionShape shape = shape_of(14, 2, 64);
  const std::vector<AttentionSegment> segments{{0, 70, 0, 70, true}};
  check_against_definition(shape, {segments}, segments, Inputs(shape, 70, 70, dtype));
}

TEST_CASE("more segments than one launch takes") {
  const DType dtype = GENERATE(DType::float32, DType::bfloat16);
  const AttentionShape shape = shape_of(1, 1, 64);
  std::vector<AttentionSegment> segments;
  for (std::int64_t i = 0; i < 140; ++i) segments.push_back({2 * i, i % 3, 2 * i, i % 3, true});
  check_against_definition(shape, {segments}, segments, Inputs(shape, 280, 280, dtype));
}

// As two ranks of a ring see it: own shard, a source earlier, a source later.
TEST_CASE("partial results over a ring's hops merge to the whole") {
  const DType dtype = GENERATE(DType::float32, DType::bfloat16);
  const AttentionShape shape = shape_of(2, 1, GENERATE(40, 64));
  const Inputs x(shape, 150, 150, dtype);
  // The last 90 rows of a sequence of 150: a causal part of its own keys, all of the others.
  check_against_definition(shape, {{{60, 90, 60, 90, true}}, {{60, 90, 0, 33, false}}, {{60, 90, 33, 27, false}}},
                           {{60, 90, 0, 150, true}}, x);
}

TEST_CASE("a repeated run gives the same bits under every order of threads") {
  const DType dtype = GENERATE(DType::float32, DType::bfloat16);
  const AttentionShape shape = shape_of(2, 1, 64);
  const std::vector<AttentionSegment> segments{{0, 100, 0, 100, true}};
  const Inputs x(shape, 100, 100, dtype);
  const Result first = attention_of(shape, {segments}, x);
  test::under_each_seed([&] { CHECK(attention_of(shape, {segments}, x) == first); }, test::few_orders);
}

TEST_CASE("a scale of 0 weighs all visible keys alike") {
  AttentionShape shape = shape_of(1, 1, GENERATE(32, 64));
  shape.scale = 0;
  const std::vector<AttentionSegment> segments{{0, 40, 0, 40, true}};
  check_against_definition(shape, {segments}, segments, Inputs(shape, 40, 40, DType::bfloat16));
}

TEST_CASE("heads that no kernel takes are an error that names them") {
  const AttentionShape shape = shape_of(1, 1, 257);
  const Inputs x(shape, 2, 2, DType::float32);
  const std::vector<AttentionSegment> segments{{0, 2, 0, 2, true}};
  CHECK_THROWS_WITH(attention_of(shape, {segments}, x), Catch::Matchers::Contains("257"));
}

// The last one: of what ran before.
TEST_CASE("the cases above launch every instance of every attention kernel") {
  CHECK(test::kernels_not_launched() == std::vector<std::string>{});
}
