// Cross-entropy and its gradient.

#include <algorithm>
#include <cmath>
#include <limits>

#include "ops_check/check_case.h"
#include "skrull/core/rng.h"

namespace skrull {

namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

struct LossRows {
  std::string name;
  HostMatrix logits, labels, weights;
};

/// Every third row is not supervised.
LossRows random_rows(std::int64_t tokens, std::int64_t vocabulary, double scale, std::int64_t padding,
                     std::int64_t offset) {
  LossRows rows{describe_layout(tokens, vocabulary, padding, offset),
                HostMatrix::random(DType::float32, tokens, vocabulary, "logits", scale, padding, offset),
                HostMatrix(DType::int32, 1, tokens), HostMatrix(DType::float32, 1, tokens)};
  Rng rng(11, "labels");
  for (std::int64_t t = 0; t < tokens; ++t) {
    const auto label = static_cast<double>(rng.below(static_cast<std::uint64_t>(vocabulary)));
    rows.labels.set(0, t, t % 3 == 2 ? -100.0 : label);
    rows.weights.set(0, t, 0.25 * static_cast<double>(1 + t % 4));
  }
  return rows;
}

/// One row each of large equal logits, of the most negative ones, of a rising ramp, and of classes that are ruled out.
LossRows extreme_rows(std::int64_t vocabulary) {
  LossRows rows = random_rows(6, vocabulary, 3, 0, 0);
  rows.name = "6 rows of extreme logits, " + std::to_string(vocabulary) + " classes";
  const HostMatrix normal = rows.logits;
  rows.logits.fill([&](std::int64_t t, std::int64_t i) {
    if (t == 0) return 1e4;
    if (t == 1) return -3e38;
    if (t == 2) return 0.01 * static_cast<double>(i);
    const bool allowed = t == 3 ? i > vocabulary / 2 : i <= vocabulary / 2;
    return allowed ? normal(t, i) : -infinity;
  });
  for (std::int64_t t = 0; t < 6; ++t)
    rows.labels.set(0, t, static_cast<double>(t == 2 || t == 3 ? vocabulary - 1 : 0));
  return rows;
}

struct RowSum {
  double maximum = -infinity;
  double sum = 0;  ///< of exp(logit - maximum)
};

std::vector<RowSum> row_sums(const HostMatrix& logits) {
  std::vector<RowSum> sums;
  for (std::int64_t t = 0; t < logits.rows(); ++t) {
    RowSum row;
    for (std::int64_t i = 0; i < logits.cols(); ++i) row.maximum = std::max(row.maximum, logits(t, i));
    for (std::int64_t i = 0; i < logits.cols(); ++i) row.sum += std::exp(logits(t, i) - row.maximum);
    sums.push_back(row);
  }
  return sums;
}

enum class GradientPlace { none, apart, over_logits };

void check_rows(CheckContext& context, const LossRows& rows, GradientPlace place) {
  const char* const places[] = {", loss alone", "", ", gradient over logits"};
  CheckCase c(context, rows.name + places[static_cast<int>(place)]);
  const std::int64_t tokens = rows.logits.rows();
  const std::int64_t vocabulary = rows.logits.cols();
  const ConstTensorView labels = c.input(rows.labels);
  const ConstTensorView weights = c.input(rows.weights);
  auto& losses = c.result("losses", HostMatrix::random(DType::float32, 1, tokens, "old losses"));
  // Logits are a result: the operation may overwrite them, and does nothing to them otherwise.
  auto& logits = c.result(place == GradientPlace::over_logits ? "gradient" : "logits", rows.logits);
  // Rows in step with the logits', or out of it.
  HostMatrix old_gradient(context.dtype, tokens, vocabulary, vocabulary % 4 == 0 ? 8 : 3);
  old_gradient.fill([](std::int64_t, std::int64_t) { return -1.0; });
  CheckCase::Result* gradient = place == GradientPlace::over_logits ? &logits : nullptr;
  if (place == GradientPlace::apart) gradient = &c.result("gradient", old_gradient);
  c.run([&](Ops& ops, Stream& stream) {
    ops.cross_entropy(
        stream, {logits.view(), labels, weights, losses.view(), gradient == nullptr ? TensorView() : gradient->view()});
  });

  const std::vector<RowSum> sums = row_sums(rows.logits);
  const double sum_roundings = sum_error(vocabulary, 1) + float_error(8, 1);
  c.expect(losses, [&](std::int64_t, std::int64_t t) {
    const auto label = static_cast<std::int64_t>(rows.labels(0, t));
    if (label < 0) return Expected{};
    const RowSum& row = sums[static_cast<std::size_t>(t)];
    const double above_label = row.maximum - rows.logits(t, label);
    return Expected{above_label + std::log(row.sum), sum_roundings + float_error(3, above_label + std::log(row.sum))};
  });
  if (place != GradientPlace::over_logits) {
    c.expect(logits, [&](std::int64_t t, std::int64_t i) { return Expected{rows.logits(t, i)}; });
  }
  if (gradient == nullptr) return;
  c.expect(*gradient, [&](std::int64_t t, std::int64_t i) {
    const auto label = static_cast<std::int64_t>(rows.labels(0, t));
    if (label < 0) return Expected{};
    const RowSum& row = sums[static_cast<std::size_t>(t)];
    const double probability = std::exp(rows.logits(t, i) - row.maximum) / row.sum;
    const double one_hot = i == label ? 1.0 : 0.0;
    const double weight = rows.weights(0, t);
    // The exponent is rounded, and an exponential carries its argument's absolute error as a relative one.
    const double exponent = probability == 0 ? 0 : row.maximum - rows.logits(t, i);
    const double relative = sum_roundings + float_error(2 * exponent, 1);
    return Expected{weight * (probability - one_hot),
                    std::abs(weight) * (probability * relative + float_error(3, probability + one_hot))};
  });
}

}  // namespace

void check_cross_entropy(CheckContext& context) {
  std::vector<LossRows> cases = {random_rows(0, 10, 5, 0, 0),   random_rows(1, 1, 5, 0, 0),
                                 random_rows(5, 7, 5, 3, 0),    random_rows(3, 260, 5, 0, 1),
                                 random_rows(4, 2048, 5, 0, 0), extreme_rows(1500)};
  if (!context.small_shapes_only) {
    cases.push_back(random_rows(7, 5003, 5, 0, 0));
    cases.push_back(random_rows(3, 152064, 5, 0, 0));
    cases.push_back(extreme_rows(20000));
  }
  for (const LossRows& rows : cases) {
    check_rows(context, rows, GradientPlace::apart);
    if (context.dtype != DType::float32) continue;
    check_rows(context, rows, GradientPlace::none);
    check_rows(context, rows, GradientPlace::over_logits);
  }
}

}  // namespace skrull
