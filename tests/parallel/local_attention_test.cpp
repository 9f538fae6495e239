// LocalAttention against attention by its definition in fp64, sequence by sequence.
#include "skrull/parallel/local_attention.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "skrull/core/error.h"
#include "support/catch.h"

using namespace skrull;

namespace {

constexpr std::int64_t heads = 4;
constexpr std::int64_t kv_heads = 2;
constexpr std::int64_t head_dim = 8;
const AttentionShape shape = {heads, kv_heads, head_dim, 1.0F / std::sqrt(8.0F)};

using Values = std::vector<float>;

Values noise(std::int64_t count, std::uint64_t seed) {
  Values values(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < values.size(); ++i) {
    const std::uint64_t mixed = (i + 1 + seed * 7919) * 0x9E3779B97F4A7C15ULL;
    values[i] = static_cast<float>(static_cast<double>(mixed >> 11U) / 9007199254740992.0 * 2 - 1);
  }
  return values;
}

struct Tensors {
  explicit Tensors(std::int64_t tokens)
      : tokens(tokens),
        q(noise(tokens * heads * head_dim, 1)),
        k(noise(tokens * kv_heads * head_dim, 2)),
        v(noise(tokens * kv_heads * head_dim, 3)),
        dout(noise(tokens * heads * head_dim, 4)),
        out(q.size()),
        lse(static_cast<std::size_t>(tokens * heads)),
        dq(q.size()),
        dk(k.size()),
        dv(v.size()) {}
  std::int64_t tokens;
  Values q, k, v, dout, out, lse, dq, dk, dv;

  TensorView view(Values& values) const {
    return {values.data(), DType::float32, tokens, tokens == 0 ? 0 : static_cast<std::int64_t>(values.size()) / tokens};
  }
};

void run(LocalAttention& attention, Tensors& t) {
  attention.forward(0, t.view(t.q), t.view(t.k), t.view(t.v), t.view(t.out), t.view(t.lse));
  attention.backward(0, t.view(t.q), t.view(t.k), t.view(t.v), t.view(t.out), t.view(t.lse), t.view(t.dout),
                     t.view(t.dq), t.view(t.dk), t.view(t.dv));
}

/// Rows [begin, begin + length) of head `head`, by the textbook, in fp64. Adds into the gradients of `t`.
void attend(Tensors& t, std::int64_t begin, std::int64_t length, std::int64_t head) {
  const auto at = [&](std::int64_t row, std::int64_t of_heads, std::int64_t of_head, std::int64_t i) {
    return static_cast<std::size_t>(((begin + row) * of_heads + of_head) * head_dim + i);
  };
  const std::int64_t kv = head / (heads / kv_heads);
  for (std::int64_t row = 0; row < length; ++row) {
    std::vector<double> weights(static_cast<std::size_t>(row) + 1);
    std::vector<double> dweights(weights.size());
    double sum = 0;
    for (std::int64_t key = 0; key <= row; ++key) {
      double score = 0;
      double dweight = 0;
      for (std::int64_t i = 0; i < head_dim; ++i) {
        score += static_cast<double>(t.q[at(row, heads, head, i)]) * t.k[at(key, kv_heads, kv, i)];
        dweight += static_cast<double>(t.dout[at(row, heads, head, i)]) * t.v[at(key, kv_heads, kv, i)];
      }
      weights[static_cast<std::size_t>(key)] = std::exp(score * shape.scale);
      dweights[static_cast<std::size_t>(key)] = dweight;
      sum += weights[static_cast<std::size_t>(key)];
    }
    t.lse[static_cast<std::size_t>((begin + row) * heads + head)] = static_cast<float>(std::log(sum));
    double mean = 0;
    for (std::size_t key = 0; key < weights.size(); ++key) {
      weights[key] /= sum;
      mean += weights[key] * dweights[key];
    }
    for (std::int64_t key = 0; key <= row; ++key) {
      const double weight = weights[static_cast<std::size_t>(key)];
      const double dscore = weight * (dweights[static_cast<std::size_t>(key)] - mean) * shape.scale;
      for (std::int64_t i = 0; i < head_dim; ++i) {
        t.out[at(row, heads, head, i)] += static_cast<float>(weight * t.v[at(key, kv_heads, kv, i)]);
        t.dq[at(row, heads, head, i)] += static_cast<float>(dscore * t.k[at(key, kv_heads, kv, i)]);
        t.dk[at(key, kv_heads, kv, i)] += static_cast<float>(dscore * t.q[at(row, heads, head, i)]);
        t.dv[at(key, kv_heads, kv, i)] += static_cast<float>(weight * t.dout[at(row, heads, head, i)]);
      }
    }
  }
}

MicroBatch packed(const std::vector<std::int64_t>& lengths) {
  MicroBatch batch;
  for (const std::int64_t length : lengths) {
    batch.local.push_back({batch.tokens(), length, static_cast<std::int64_t>(batch.local.size())});
    batch.ids.resize(batch.ids.size() + static_cast<std::size_t>(length));
  }
  return batch;
}

void check_close(const Values& actual, const Values& expected) {
  REQUIRE(actual.size() == expected.size());
  double error = 0;
  double norm = 0;
  for (std::size_t i = 0; i < actual.size(); ++i) {
    error += std::pow(static_cast<double>(actual[i]) - expected[i], 2);
    norm += std::pow(static_cast<double>(expected[i]), 2);
  }
  // Inputs are of order 1; the gradients of a lone token are 0.
  CHECK(std::sqrt(error) <= 2e-6 * std::sqrt(std::max(norm, static_cast<double>(actual.size()))));
}

}  // namespace

TEST_CASE("local attention is causal attention of each sequence", "[attention]") {
  const auto device = make_cpu_device(1);
  LocalAttention attention(shape, 200, true, *device);
  for (const std::vector<std::int64_t>& lengths : {std::vector<std::int64_t>{1}, {5, 0, 1, 70}, {33, 64, 100}}) {
    const MicroBatch batch = packed(lengths);
    attention.begin(batch);
    Tensors actual(batch.tokens());
    Tensors expected(batch.tokens());
    // Gradients are added to what is there.
    actual.dq.assign(actual.dq.size(), 0.25F);
    expected.dq.assign(expected.dq.size(), 0.25F);
    run(attention, actual);
    for (const PackedSequence& sequence : batch.local) {
      for (std::int64_t head = 0; head < heads; ++head) attend(expected, sequence.begin, sequence.length, head);
    }
    check_close(actual.out, expected.out);
    check_close(actual.lse, expected.lse);
    check_close(actual.dq, expected.dq);
    check_close(actual.dk, expected.dk);
    check_close(actual.dv, expected.dv);
  }
}

TEST_CASE("nothing passes from one sequence to another, bit for bit", "[attention]") {
  const auto device = make_cpu_device(1);
  LocalAttention attention(shape, 100, true, *device);
  const MicroBatch batch = packed({30, 40, 30});
  attention.begin(batch);
  Tensors before(100);
  Tensors after(100);
  for (std::int64_t i = 0; i < kv_heads * head_dim; ++i) {
    after.k[static_cast<std::size_t>(45 * kv_heads * head_dim + i)] += 1;
    after.v[static_cast<std::size_t>(45 * kv_heads * head_dim + i)] -= 1;
  }
  run(attention, before);
  run(attention, after);
  const auto same_rows = [](const Values& a, const Values& b, std::int64_t begin, std::int64_t end) {
    const std::int64_t width = static_cast<std::int64_t>(a.size()) / 100;
    return std::memcmp(a.data() + begin * width, b.data() + begin * width,
                       static_cast<std::size_t>((end - begin) * width) * sizeof(float)) == 0;
  };
  for (Values Tensors::*part : {&Tensors::out, &Tensors::lse, &Tensors::dq, &Tensors::dk, &Tensors::dv}) {
    CHECK(same_rows(before.*part, after.*part, 0, 30));
    CHECK(same_rows(before.*part, after.*part, 70, 100));
  }
  CHECK(same_rows(before.out, after.out, 30, 45));  // causal: earlier rows of the same sequence
  CHECK_FALSE(same_rows(before.out, after.out, 45, 46));
}

TEST_CASE("an empty micro-batch does nothing, a wrong one is refused", "[attention]") {
  const auto device = make_cpu_device(1);
  LocalAttention attention(shape, 10, true, *device);
  CHECK(device->memory().by_category().at("activations") == LocalAttention::planned_bytes(shape, 10, true));
  attention.begin(packed({}));
  Tensors empty(0);
  run(attention, empty);
  CHECK_THROWS_AS(attention.begin(packed({6, 5})), RunFailure);
  MicroBatch batch = packed({3, 4});
  batch.local[1].begin = 4;
  CHECK_THROWS_AS(attention.begin(batch), RunFailure);
  batch = packed({3, 4});
  batch.local.pop_back();
  CHECK_THROWS_AS(attention.begin(batch), RunFailure);
  attention.begin(packed({3}));
  Tensors five(5);
  CHECK_THROWS_AS(run(attention, five), RunFailure);

  LocalAttention evaluation(shape, 10, false, *device);
  evaluation.begin(packed({5}));
  CHECK_THROWS_AS(run(evaluation, five), RunFailure);
}
