// Training state on the CUDA device's code, used in every way that its interface allows and not only as the model and
// the trainer use it: gradients of blocks in any order, without a pass over the parameters between, updates without a
// look at the norm, states that are written and values that are read while parameters are on their way. What orders the
// streams must not be the caller.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <numeric>
#include <vector>

#include "parallel/small_model.h"
#include "simt/simt.h"
#include "skrull/comm/device_communicator.h"
#include "skrull/core/rng.h"
#include "skrull/device/ops.h"
#include "skrull/parallel/trainable_parameters.h"
#include "support/catch.h"
#include "support/mpi.h"

using namespace skrull;

namespace {

/// The same calls on every rank and device under the same seed; ranks differ in the gradients they add.
class RandomUse {
 public:
  RandomUse(Device& device, Communicator& world, const TrainableParametersOptions& options, std::uint64_t seed)
      : device_(device),
        rng_(seed, "uses"),
        table_(model()),
        parameters_(make_trainable_parameters(table_, options, device, world)) {
    for (int block = 0; block < table_.block_count(); ++block) {
      largest_ = std::max(largest_, table_.block_elements(block));
    }
    for (std::uint64_t i = 0; i < noises; ++i) {
      Rng noise(100 * seed + 10 * i + static_cast<std::uint64_t>(world.rank()), "noise");
      std::vector<float> values(static_cast<std::size_t>(largest_));
      for (float& value : values) value = static_cast<float>(noise.normal());
      noise_.push_back(device.allocate(DType::float32, 1, largest_, "noise"));
      device.copy_to_device(device.compute_stream(), whole(noise_.back()), values.data());
      noise_on_host_.push_back(std::move(values));
    }
    sums_ = device.allocate(DType::float32, 1, largest_, "sums");
    device.ops().fill_zero(device.compute_stream(), whole(sums_));
  }

  /// Everything that was seen of the state, and what is left of it.
  std::vector<float> run() {
    set_values();
    for (step_ = 1; step_ <= 6; ++step_) {
      train_one_step();
      if (rng_.below(3) == 0) pass();
      switch (rng_.below(4)) {
        case 0:
          get_values();
          break;
        case 1:
          write_owned_parts();
          break;
        case 2:
          set_values();
          break;
        default:
          break;
      }
    }
    pass();
    fetch(whole(sums_));
    for (int block = 0; block < table_.block_count(); ++block) {
      const OwnedState owned = parameters_->owned(block);
      for (const TensorView& view : {owned.parameter, owned.first_moment, owned.second_moment}) fetch(view);
    }
    return std::move(seen_);
  }

 private:
  static constexpr std::uint64_t noises = 4;

  static Qwen2Config model() {
    Qwen2Config config = test::small_config(false);
    config.num_layers = 4;
    return config;
  }

  TensorView whole(const Buffer& buffer) const { return buffer.view(DType::float32, 1, largest_); }

  /// All of them, in the model's order or another.
  std::vector<int> blocks(bool shuffled) {
    std::vector<int> all(static_cast<std::size_t>(table_.block_count()));
    std::iota(all.begin(), all.end(), 0);
    if (shuffled) rng_.shuffle(all);
    return all;
  }

  void train_one_step() {
    const auto micro_batches = static_cast<std::int64_t>(1 + rng_.below(4));
    parameters_->begin_step(micro_batches);
    for (std::int64_t i = 0; i < micro_batches; ++i) {
      if (rng_.below(3) == 0) pass();
      for (const int block : blocks(true)) {
        const ConstTensorView share = whole(noise_[rng_.below(noises)]).slice_cols(0, table_.block_elements(block));
        if (rng_.below(5) > 0) device_.ops().add(device_.compute_stream(), share, parameters_->accumulator(block));
        parameters_->ready(block);
      }
    }
    parameters_->finish_gradients();
    if (rng_.below(3) == 0) pass();
    if (rng_.below(4) == 0) {
      for (int block = 0; block < table_.block_count(); ++block) fetch(parameters_->owned(block).gradient);
    }
    if (rng_.below(2) == 0) seen_.push_back(static_cast<float>(parameters_->gradient_norm()));
    if (rng_.below(4) > 0) parameters_->update({.learning_rate = 0.1, .weight_decay = 0.1}, 1.0);
  }

  /// Uses the values of all blocks.
  void pass() {
    for (const int block : blocks(rng_.below(3) == 0)) {
      const ConstTensorView values = parameters_->acquire(block);
      device_.ops().add(device_.compute_stream(), values, whole(sums_).slice_cols(0, values.cols()));
      parameters_->release(block);
    }
  }

  void set_values() {
    parameters_->set_values([&](const BlockOnHost& values) {
      for (int block = 0; block < table_.block_count(); ++block) {
        const TensorView view = values(block);
        for (std::int64_t i = 0; i < view.elements(); ++i) {
          view.as<float>()[i] = static_cast<float>((i + 3 * block + 5 * step_) % 17) * 0.25F - 2;
        }
      }
    });
  }

  void get_values() {
    parameters_->get_values([&](const BlockOnHost& values) {
      for (int block = table_.block_count(); block-- > 0;) {
        const TensorView view = values(block);
        seen_.insert(seen_.end(), view.as<float>(), view.as<float>() + view.elements());
      }
    });
  }

  void write_owned_parts() {
    for (int block = 0; block < table_.block_count(); ++block) {
      const OwnedState owned = parameters_->owned(block);
      const std::vector<float>& values = noise_on_host_[rng_.below(noises)];
      for (const TensorView& view : {owned.parameter, owned.first_moment}) {
        device_.copy_to_device(device_.compute_stream(), view, values.data());
      }
    }
    parameters_->restore(parameters_->updates());
  }

  void fetch(const ConstTensorView& view) {
    const std::size_t before = seen_.size();
    seen_.resize(before + static_cast<std::size_t>(view.elements()));
    device_.copy_to_host(device_.compute_stream(), seen_.data() + before, view);
    device_.compute_stream().synchronize();
  }

  Device& device_;
  Rng rng_;
  ParameterTable table_;
  std::unique_ptr<TrainableParameters> parameters_;
  std::int64_t largest_ = 0;
  std::vector<Buffer> noise_;  // differs by rank
  std::vector<std::vector<float>> noise_on_host_;
  Buffer sums_;  // of the values in all passes
  std::int64_t step_ = 0;
  std::vector<float> seen_;
};

std::vector<float> use(Device& device, const TrainableParametersOptions& options, std::uint64_t seed) {
  const auto world = make_device_communicator(device, test::mpi_session());
  return RandomUse(device, *world, options, seed).run();
}

}  // namespace

TEST_CASE("training state on the GPU's code, used in any order, is the CPU device's", "[state]") {
  const auto dtype = GENERATE(DType::float32, DType::bfloat16);
  const bool optimizer_on_host = GENERATE(false, true);
  const double tolerance = dtype == DType::float32 ? 1e-5 : 1e-2;
  const std::uint64_t seeds = test::mpi_session().size() == 2 ? 24 : 8;
  for (std::uint64_t seed = 1; seed <= seeds; ++seed) {
    simt::options().seed = seed;
    const TrainableParametersOptions options = {
        .compute_dtype = dtype, .optimizer_on_host = optimizer_on_host, .zero_stage = static_cast<int>(seed % 4)};
    CAPTURE(seed, options.zero_stage, optimizer_on_host, dtype);
    const auto cpu = make_cpu_device(1);
    const auto gpu = make_cuda_device(test::mpi_session().local_rank());
    const std::vector<float> expected = use(*cpu, options, seed);
    const std::vector<float> actual = use(*gpu, options, seed);
    REQUIRE(actual.size() == expected.size());
    double worst = 0;
    for (std::size_t i = 0; i < actual.size(); ++i) {
      const double difference = std::abs(double{actual[i]} - double{expected[i]}) / (1 + std::abs(double{expected[i]}));
      worst = std::max(worst, std::isnan(difference) ? HUGE_VAL : difference);
    }
    CHECK(worst <= tolerance);
  }
}
