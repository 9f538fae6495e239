#include "ops_check/check_case.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <exception>
#include <limits>
#include <utility>

namespace skrull {

double rounding_of(DType dtype) {
  switch (dtype) {
    case DType::float32:
      return 0x1p-24;
    case DType::bfloat16:
      return 0x1p-8;
    case DType::float64:
      return 0x1p-53;
    default:
      return 0;
  }
}

double sum_error(std::int64_t terms, double size) {
  const auto count = static_cast<double>(terms);
  return float_error(std::min(count, 4 * std::sqrt(count)), size);
}

double float_error(double roundings, double size) {
  // Below the smallest normal number roundings are no longer relative, and exponentials may give 0.
  return roundings * rounding_of(DType::float32) * size + double{std::numeric_limits<float>::min()};
}

namespace {

Buffer allocate_for(Device& device, const HostMatrix& values) {
  return device.allocate(static_cast<std::int64_t>(values.bytes().size()), "ops check");
}

bool same_value(double a, double b) {
  return a == b || (std::isnan(a) && std::isnan(b));
}

}  // namespace

CheckCase::Result::Result(std::string name, const HostMatrix& before, Device& device)
    : name_(std::move(name)),
      before_(before),
      values_(before),
      memory_(allocate_for(device, before)),
      view_(before.view_in(memory_.data())) {}

ConstTensorView CheckCase::input(const HostMatrix& values) {
  inputs_.push_back({values, allocate_for(device(), values)});
  const Input& operand = inputs_.back();
  upload(operand.values, operand.memory);
  return operand.values.view_in(operand.memory.data());
}

CheckCase::Result& CheckCase::result(std::string name, const HostMatrix& before) {
  results_.push_back(Result(std::move(name), before, device()));
  return results_.back();
}

void CheckCase::upload(const HostMatrix& values, const Buffer& memory) {
  const auto bytes = static_cast<std::int64_t>(values.bytes().size());
  device().copy_to_device(device().compute_stream(), memory.view(DType::uint8, 1, bytes), values.bytes().data());
}

HostMatrix CheckCase::download(const HostMatrix& like, const Buffer& memory) {
  HostMatrix values = like;
  const auto bytes = static_cast<std::int64_t>(values.bytes().size());
  device().copy_to_host(device().compute_stream(), values.bytes().data(), memory.view(DType::uint8, 1, bytes));
  device().compute_stream().synchronize();
  return values;
}

void CheckCase::run(const std::function<void(Ops&, Stream&)>& operation) {
  try {
    run_twice(operation);
  } catch (const std::exception& error) {
    fail(fmt::format("stopped with \"{}\"", error.what()));
  }
}

void CheckCase::run_twice(const std::function<void(Ops&, Stream&)>& operation) {
  Stream& stream = device().compute_stream();
  for (const bool again : {false, true}) {
    for (const Result& result : results_) upload(result.before_, result.memory_);
    operation(device().ops(), stream);
    stream.synchronize();
    for (Result& result : results_) {
      HostMatrix values = download(result.before_, result.memory_);
      if (again && context_.same_bits && !(values == result.values_))
        result.problem_ = "has other bits in a second run";
      result.values_ = std::move(values);
      if (!result.values_.guards_intact()) result.problem_ = "was written outside its rows";
    }
  }
  for (const Input& input : inputs_) {
    if (!(download(input.values, input.memory) == input.values)) fail("came with a change of an operand");
  }
}

void CheckCase::fail(const std::string& problem) {
  for (Result& result : results_) result.problem_ = problem;
}

void CheckCase::expect(const Result& result, const std::function<Expected(std::int64_t, std::int64_t)>& expected) {
  OpCheck check{context_.operation, result.name_, shape_, context_.dtype, 0, 0, result.problem_};
  const double rounding = rounding_of(result.values_.dtype());
  double nearest = -1;  // error over tolerance
  for (std::int64_t i = 0; i < result.values_.rows(); ++i) {
    for (std::int64_t j = 0; j < result.values_.cols(); ++j) {
      const Expected want = expected(i, j);
      const double value = result.values_(i, j);
      if (same_value(value, want.value)) continue;
      const double error = std::abs(value - want.value);
      const double tolerance = want.error + rounding * std::abs(want.value);
      const bool close = std::isfinite(error) && error <= tolerance;
      const double share = close ? error / tolerance : std::numeric_limits<double>::infinity();
      if (share <= nearest) continue;
      nearest = share;
      check.error = error;
      check.tolerance = tolerance;
      if (!close && check.problem.empty()) {
        check.problem = fmt::format("element ({}, {}) is {:.9g}, expected {:.9g} within {:.2g}", i, j, value,
                                    want.value, tolerance);
      }
    }
  }
  context_.checks.push_back(std::move(check));
}

std::string describe_layout(std::int64_t rows, std::int64_t cols, std::int64_t padding, std::int64_t offset) {
  std::string text = fmt::format("{} x {}", rows, cols);
  if (padding != 0) text.append(fmt::format(", {} apart", padding));
  if (offset != 0) text.append(fmt::format(", off by {}", offset));
  return text;
}

std::vector<CheckLayout> check_layouts(const CheckContext& context) {
  std::vector<CheckLayout> layouts = {{0, 5},     {1, 1},        {1, 37},       {29, 1, 3},     {5, 64},
                                      {7, 67, 5}, {3, 72, 8, 8}, {4, 64, 0, 1}, {2, 1030, 0, 0}};
  if (!context.small_shapes_only) {
    layouts.push_back({131, 896, 0, 0});
    layouts.push_back({300, 515, 9, 3});
    layouts.push_back({3, 4096, 0, 0});
    layouts.push_back({3, 8192, 0, 0});
    layouts.push_back({2, 8200, 16, 0});
  }
  return layouts;
}

}  // namespace skrull
