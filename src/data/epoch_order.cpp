#include "skrull/data/epoch_order.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "skrull/core/error.h"
#include "skrull/core/rng.h"

namespace skrull {
namespace {

std::vector<std::int64_t> ascending(std::int64_t count) {
  std::vector<std::int64_t> values(static_cast<std::size_t>(count));
  std::iota(values.begin(), values.end(), std::int64_t{0});
  return values;
}

/// Whole numbers up to here have a double of their own.
constexpr double most_steps = 0x1p53;

/// ceil(value) that takes 11.000000000000002 (such as 1.1 x 10) for 11.
std::int64_t ceil_of_product(double factor, std::int64_t count) {
  const double product = factor * static_cast<double>(count);
  return static_cast<std::int64_t>(std::ceil(product * (1.0 - 1e-12)));
}

Rng epoch_rng(std::uint64_t seed, std::int64_t epoch) {
  return Rng(random_key(seed, fmt::format("data order of epoch {}", epoch)));
}

std::vector<std::int64_t> sorted_batches(const EpochOrderRequest& request, std::int64_t epoch) {
  std::vector<std::pair<std::int64_t, std::int64_t>> by_length;  // (length, sample)
  by_length.reserve(static_cast<std::size_t>(request.samples));
  for (std::int64_t sample = 0; sample < request.samples; ++sample) {
    by_length.emplace_back(request.length(sample), sample);
  }
  std::sort(by_length.begin(), by_length.end());
  const std::int64_t batches = steps_per_epoch(request.samples, request.global_batch_size);
  std::vector<std::int64_t> batch_order = ascending(batches);
  epoch_rng(request.seed, epoch).shuffle(batch_order);
  const std::int64_t smaller = batch_order.back();
  const std::int64_t missing = batches * request.global_batch_size - request.samples;
  std::vector<std::int64_t> order;
  order.reserve(by_length.size());
  for (const std::int64_t batch : batch_order) {
    const std::int64_t begin = batch * request.global_batch_size - (batch > smaller ? missing : 0);
    const std::int64_t end = begin + request.global_batch_size - (batch == smaller ? missing : 0);
    for (std::int64_t i = begin; i < end; ++i) order.push_back(by_length[static_cast<std::size_t>(i)].second);
  }
  return order;
}

}  // namespace

std::int64_t steps_per_epoch(std::int64_t samples, std::int64_t global_batch_size) {
  require(samples >= 1 && global_batch_size >= 1, "epoch of {} samples in batches of {}: must be at least 1", samples,
          global_batch_size);
  return (samples - 1) / global_batch_size + 1;
}

std::int64_t total_steps(std::int64_t steps_per_epoch, double num_train_epochs, std::int64_t max_steps) {
  if (max_steps > 0) return max_steps;
  if (num_train_epochs * static_cast<double>(steps_per_epoch) >= most_steps) {
    throw_invalid_input("num_train_epochs: {:g} epochs of {} steps are more than can be counted", num_train_epochs,
                        steps_per_epoch);
  }
  return std::max<std::int64_t>(1, ceil_of_product(num_train_epochs, steps_per_epoch));
}

std::vector<std::int64_t> epoch_order(const EpochOrderRequest& request, std::int64_t epoch) {
  if (request.order == DataOrder::sorted_batches) return sorted_batches(request, epoch);
  std::vector<std::int64_t> order = ascending(request.samples);
  if (request.order == DataOrder::shuffled) epoch_rng(request.seed, epoch).shuffle(order);
  return order;
}

EpochOrder::EpochOrder(EpochOrderRequest request)
    : request_(std::move(request)),
      steps_per_epoch_(skrull::steps_per_epoch(request_.samples, request_.global_batch_size)) {}

std::vector<std::int64_t> EpochOrder::global_batch(std::int64_t step) {
  require(step >= 0, "no step {}", step);
  const std::int64_t epoch = step / steps_per_epoch_;
  if (epoch != epoch_) {
    order_ = epoch_order(request_, epoch);
    epoch_ = epoch;
  }
  const std::int64_t begin = step % steps_per_epoch_ * request_.global_batch_size;
  const std::int64_t end = std::min(begin + request_.global_batch_size, request_.samples);
  return {order_.begin() + begin, order_.begin() + end};
}

SampleSplit split_samples(std::int64_t samples, const ValidationSize& val_size, std::uint64_t seed) {
  const std::int64_t held_out = val_size.rows > 0 ? val_size.rows : ceil_of_product(val_size.fraction, samples);
  if (held_out > 0 && held_out >= samples) {
    throw_invalid_input("val_size would hold out {} of {} samples and leave none to train on", held_out, samples);
  }
  std::vector<std::int64_t> order = ascending(samples);
  Rng(seed, "validation split").shuffle(order);
  const auto cut = order.begin() + held_out;
  SampleSplit split{{cut, order.end()}, {order.begin(), cut}};
  std::sort(split.train.begin(), split.train.end());
  std::sort(split.eval.begin(), split.eval.end());
  return split;
}

}  // namespace skrull
