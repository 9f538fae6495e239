#include <limits>

#include "device/matrix.h"

using namespace skrull;
using skrull::test::check_close;
using skrull::test::Matrix;

namespace {

double log_sum_exp(const Matrix& logits, std::int64_t t) {
  double maximum = -std::numeric_limits<double>::infinity();
  for (std::int64_t i = 0; i < logits.cols(); ++i) maximum = std::max(maximum, logits(t, i));
  double sum = 0;
  for (std::int64_t i = 0; i < logits.cols(); ++i) sum += std::exp(logits(t, i) - maximum);
  return maximum + std::log(sum);
}

struct Rows {
  Matrix logits;
  Matrix labels;
  Matrix weights;
  Matrix losses;
};

Rows make_rows(std::int64_t tokens, std::int64_t vocabulary, double scale, std::int64_t padding) {
  Rows rows{Matrix::random(DType::float32, tokens, vocabulary, "logits", scale, padding),
            Matrix(DType::int32, 1, tokens), Matrix(DType::float32, 1, tokens), Matrix(DType::float32, 1, tokens)};
  Rng rng(11, "labels");
  for (std::int64_t t = 0; t < tokens; ++t) {
    rows.labels.set(0, t, t % 3 == 2 ? -100.0 : static_cast<double>(rng.below(static_cast<std::uint64_t>(vocabulary))));
    rows.weights.set(0, t, 0.25 * static_cast<double>(1 + t % 4));
  }
  return rows;
}

CrossEntropy arguments(Rows& rows) {
  CrossEntropy c;
  c.logits = rows.logits.view();
  c.labels = rows.labels.view();
  c.weights = rows.weights.view();
  c.losses = rows.losses.view();
  return c;
}

double expected_gradient(const Matrix& logits, const Rows& rows, const std::vector<double>& lse, std::int64_t t,
                         std::int64_t i) {
  const auto label = static_cast<std::int64_t>(rows.labels(0, t));
  if (label < 0) return 0;
  return rows.weights(0, t) * (std::exp(logits(t, i) - lse[static_cast<std::size_t>(t)]) - (i == label ? 1.0 : 0.0));
}

}  // namespace

// A probability is exp of a difference that is rounded in fp32, to half of 2^-23 x 32 here: hence 3e-6.
TEST_CASE("cross-entropy and its gradient against the definition") {
  Device& device = test::device_with_threads(2);
  const auto [tokens, vocabulary] =
      GENERATE(std::pair<std::int64_t, std::int64_t>{0, 10}, std::pair<std::int64_t, std::int64_t>{1, 1},
               std::pair<std::int64_t, std::int64_t>{5, 7}, std::pair<std::int64_t, std::int64_t>{4, 2048},
               std::pair<std::int64_t, std::int64_t>{7, 5003}, std::pair<std::int64_t, std::int64_t>{3, 152064});
  const std::int64_t padding = tokens == 5 ? 3 : 0;
  Rows rows = make_rows(tokens, vocabulary, 5, padding);
  const Matrix logits = rows.logits;
  std::vector<double> lse;
  for (std::int64_t t = 0; t < tokens; ++t) lse.push_back(log_sum_exp(logits, t));
  const auto loss = [&](std::int64_t, std::int64_t t) {
    const auto label = static_cast<std::int64_t>(rows.labels(0, t));
    return label < 0 ? 0.0 : lse[static_cast<std::size_t>(t)] - logits(t, label);
  };

  CrossEntropy c = arguments(rows);
  device.ops().cross_entropy(device.compute_stream(), c);  // no gradient
  check_close(rows.losses, loss, 1e-6, 1.0);
  CHECK(rows.logits == logits);

  for (const DType dtype : {DType::float32, DType::bfloat16}) {
    rows.losses.fill([](std::int64_t, std::int64_t) { return -1.0; });
    Matrix gradient = Matrix::random(dtype, tokens, vocabulary, "old", 1, padding);
    c.gradient = gradient.view();
    device.ops().cross_entropy(device.compute_stream(), c);
    check_close(rows.losses, loss, 1e-6, 1.0);
    check_close(
        gradient, [&](std::int64_t t, std::int64_t i) { return expected_gradient(logits, rows, lse, t, i); }, 3e-6,
        0.1);
  }

  c.gradient = rows.logits.view();  // in place
  device.ops().cross_entropy(device.compute_stream(), c);
  check_close(
      rows.logits, [&](std::int64_t t, std::int64_t i) { return expected_gradient(logits, rows, lse, t, i); }, 3e-6,
      0.1);
}

TEST_CASE("cross-entropy keeps its digits for large and equal logits") {
  Device& device = test::device_with_threads(1);
  Rows rows = make_rows(2, 1000, 0, 0);
  rows.logits.fill([](std::int64_t t, std::int64_t) { return t == 0 ? 1e4 : -3e38; });
  device.ops().cross_entropy(device.compute_stream(), arguments(rows));
  CHECK(rows.losses(0, 0) == Approx(std::log(1000.0)).epsilon(1e-6));
  CHECK(rows.losses(0, 1) == Approx(std::log(1000.0)).epsilon(1e-6));
}

TEST_CASE("the growing maximum of a rising row loses nothing") {
  Device& device = test::device_with_threads(1);
  Rows rows = make_rows(1, 20000, 0, 0);
  rows.logits.fill([](std::int64_t, std::int64_t i) { return static_cast<double>(i) * 0.01; });
  rows.labels.set(0, 0, 19999);
  device.ops().cross_entropy(device.compute_stream(), arguments(rows));
  CHECK(rows.losses(0, 0) == Approx(log_sum_exp(rows.logits, 0) - rows.logits(0, 19999)).epsilon(1e-6));
}

TEST_CASE("non-finite logits give a non-finite loss and leave the other rows alone") {
  Device& device = test::device_with_threads(2);
  const double infinity = std::numeric_limits<double>::infinity();
  const double bad = GENERATE_COPY(std::nan(""), infinity, -infinity);
  Rows rows = make_rows(2, 3000, 3, 0);
  rows.labels.set(0, 0, 5);
  rows.labels.set(0, 1, 6);
  const std::int64_t place = GENERATE(5, 2999);
  rows.logits.set(0, place, bad);
  Matrix gradient(DType::float32, 2, 3000);
  CrossEntropy c = arguments(rows);
  c.gradient = gradient.view();
  device.ops().cross_entropy(device.compute_stream(), c);
  const bool harmless = bad == -infinity && place != 5;  // a class that is ruled out
  CHECK(std::isfinite(rows.losses(0, 0)) == harmless);
  CHECK(rows.losses(0, 1) == Approx(log_sum_exp(rows.logits, 1) - rows.logits(1, 6)));
}

TEST_CASE("classes that are ruled out by minus infinity, thousands in a row, count nothing") {
  Device& device = test::device_with_threads(1);
  const std::int64_t first_allowed = GENERATE(5000, 0);
  Rows rows = make_rows(1, 10000, 3, 0);
  const Matrix logits = rows.logits;
  double sum = 0;
  for (std::int64_t i = 0; i < 10000; ++i) {
    if (i < first_allowed || i >= first_allowed + 5000) {
      rows.logits.set(0, i, -std::numeric_limits<double>::infinity());
    } else {
      sum += std::exp(logits(0, i));
    }
  }
  rows.labels.set(0, 0, static_cast<double>(first_allowed));
  CrossEntropy c = arguments(rows);
  c.gradient = rows.logits.view();
  device.ops().cross_entropy(device.compute_stream(), c);
  CHECK(rows.losses(0, 0) == Approx(std::log(sum) - logits(0, first_allowed)).epsilon(1e-6));
  CHECK(rows.logits(0, first_allowed == 0 ? 9999 : 0) == 0);
  CHECK(rows.logits(0, first_allowed + 1) == Approx(0.25 * std::exp(logits(0, first_allowed + 1)) / sum).epsilon(1e-5));
}

TEST_CASE("a row of minus infinity alone has no finite loss") {
  Device& device = test::device_with_threads(1);
  Rows rows = make_rows(1, 40, 0, 0);
  rows.logits.fill([](std::int64_t, std::int64_t) { return -std::numeric_limits<double>::infinity(); });
  device.ops().cross_entropy(device.compute_stream(), arguments(rows));
  CHECK_FALSE(std::isfinite(rows.losses(0, 0)));
}

TEST_CASE("mismatched operands of the loss are refused") {
  Device& device = test::device_with_threads(1);
  Rows rows = make_rows(3, 8, 1, 0);
  CrossEntropy c = arguments(rows);
  Matrix gradient(DType::bfloat16, 3, 7);
  c.gradient = gradient.view();
  CHECK_THROWS_WITH(device.ops().cross_entropy(device.compute_stream(), c),
                    "cross_entropy: gradient is 3 x 7, expected 3 x 8");
  c = arguments(rows);
  const Matrix half(DType::bfloat16, 3, 8);
  c.labels = rows.weights.view();
  CHECK_THROWS_WITH(device.ops().cross_entropy(device.compute_stream(), c),
                    "cross_entropy: labels is float32, expected int32");
}
