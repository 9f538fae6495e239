// Training state over 1 to 4 ranks against AdamW by its definition in fp64 on the sum of all gradients.
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "parallel/small_model.h"
#include "skrull/core/error.h"
#include "skrull/device/ops.h"
#include "skrull/parallel/trainable_parameters.h"
#include "support/catch.h"
#include "support/mpi.h"

using namespace skrull;

namespace {

constexpr int samples = 12;  // divisible by every number of ranks of this test

struct Run {
  explicit Run(std::unique_ptr<Communicator> all, TrainableParametersOptions options = {}, bool tied = false)
      : communicator(std::move(all)),
        parameters(make_replicated_parameters(test::small_table(tied), options, *device, *communicator)) {}
  std::unique_ptr<Device> device = make_cpu_device(1);
  std::unique_ptr<Communicator> communicator;
  std::unique_ptr<TrainableParameters> parameters;

  int rank() const { return communicator->rank(); }
  int size() const { return communicator->size(); }
};

Run all_ranks(TrainableParametersOptions options = {}) {
  return Run(test::mpi_session().world(), options);
}

double unit_noise(std::uint64_t a, std::uint64_t b, std::uint64_t c) {
  std::uint64_t x = (a * 1000003 + b) * 1000003 + c + 1;
  x = (x ^ (x >> 31U)) * 0x9E3779B97F4A7C15ULL;
  x = (x ^ (x >> 29U)) * 0xBF58476D1CE4E5B9ULL;
  return static_cast<double>(x >> 11U) / 9007199254740992.0 * 2 - 1;
}

float initial(int block, std::int64_t i) {
  return static_cast<float>(unit_noise(1000, static_cast<std::uint64_t>(block), static_cast<std::uint64_t>(i)));
}
/// What sample `sample` adds to the gradient in step `step`.
float gradient(int step, int sample, int block, std::int64_t i) {
  return static_cast<float>(unit_noise(static_cast<std::uint64_t>(step * samples + sample),
                                       static_cast<std::uint64_t>(block), static_cast<std::uint64_t>(i)));
}

void set_initial(TrainableParameters& parameters) {
  parameters.set_values([&](const BlockOnHost& blocks) {
    for (int block = 0; block < parameters.table().block_count(); ++block) {
      const TensorView values = blocks(block);
      for (std::int64_t i = 0; i < values.elements(); ++i) values.as<float>()[i] = initial(block, i);
    }
  });
}

/// One micro-batch per sample; sample s belongs to rank s mod size. The blocks come in the order of a backward pass.
void accumulate(Run& run, int step) {
  TrainableParameters& parameters = *run.parameters;
  parameters.begin_step(samples / run.size());
  for (int sample = run.rank(); sample < samples; sample += run.size()) {
    for (int block = parameters.table().block_count() - 1; block >= 0; --block) {
      parameters.acquire(block);
      parameters.release(block);
      const TensorView sum = parameters.accumulator(block);
      for (std::int64_t i = 0; i < sum.elements(); ++i) sum.as<float>()[i] += gradient(step, sample, block, i);
      parameters.ready(block);
    }
  }
  parameters.finish_gradients();
}

AdamWSettings settings_of(int step) {
  return {.learning_rate = 0.01 / (step + 1), .beta1 = 0.9, .beta2 = 0.95, .epsilon = 1e-6, .weight_decay = 0.1};
}

struct Reference {
  std::vector<std::vector<double>> parameter, gradient, first, second;
  int updates = 0;

  explicit Reference(const ParameterTable& table) : table(table) {
    for (int block = 0; block < table.block_count(); ++block) {
      const auto elements = static_cast<std::size_t>(table.block_elements(block));
      gradient.emplace_back(elements);
      first.emplace_back(elements);
      second.emplace_back(elements);
      parameter.emplace_back(elements);
      for (std::size_t i = 0; i < elements; ++i) {
        parameter.back()[i] = initial(block, static_cast<std::int64_t>(i));
      }
    }
  }

  double accumulate(int step) {
    double squares = 0;
    for (int block = 0; block < table.block_count(); ++block) {
      auto& sums = gradient[static_cast<std::size_t>(block)];
      for (std::size_t i = 0; i < sums.size(); ++i) {
        sums[i] = 0;
        for (int sample = 0; sample < samples; ++sample) {
          sums[i] += ::gradient(step, sample, block, static_cast<std::int64_t>(i));
        }
        squares += sums[i] * sums[i];
      }
    }
    return std::sqrt(squares);
  }

  // Loshchilov, Hutter 2019, algorithm 2.
  void update(const AdamWSettings& s, double scale) {
    ++updates;
    for (const ParameterSpec& spec : table.parameters()) {
      const auto block = static_cast<std::size_t>(spec.block);
      for (std::int64_t j = 0; j < spec.elements(); ++j) {
        const auto i = static_cast<std::size_t>(spec.offset + j);
        const double g = gradient[block][i] * scale;
        double& m = first[block][i];
        double& v = second[block][i];
        double& p = parameter[block][i];
        m = s.beta1 * m + (1 - s.beta1) * g;
        v = s.beta2 * v + (1 - s.beta2) * g * g;
        if (spec.weight_decay) p -= s.learning_rate * s.weight_decay * p;
        const double m_hat = m / (1 - std::pow(s.beta1, updates));
        const double v_hat = v / (1 - std::pow(s.beta2, updates));
        p -= s.learning_rate * m_hat / (std::sqrt(v_hat) + s.epsilon);
      }
    }
  }

  ParameterTable table;
};

std::vector<float> block_values(TrainableParameters& parameters, int block) {
  const ConstTensorView values = parameters.acquire(block);
  std::vector<float> result(values.as<float>(), values.as<float>() + values.elements());
  parameters.release(block);
  return result;
}

double largest_difference(TrainableParameters& parameters, const std::vector<std::vector<double>>& expected) {
  double largest = 0;
  for (int block = 0; block < parameters.table().block_count(); ++block) {
    const std::vector<float> values = block_values(parameters, block);
    for (std::size_t i = 0; i < values.size(); ++i) {
      const double difference = std::abs(values[i] - expected[static_cast<std::size_t>(block)][i]);
      largest = std::isnan(difference) ? std::numeric_limits<double>::infinity() : std::max(largest, difference);
    }
  }
  return largest;
}

/// All ranks hold this very value.
bool same_everywhere(Run& run, double value) {
  ControlChannel control(*run.communicator, run.device->communication_stream());
  const auto bits = static_cast<std::int64_t>(std::bit_cast<std::uint64_t>(value) & 0x7FFFFFFFFFFFFFFFULL);
  return control.max(bits) == bits && -control.max(-bits) == bits;
}

std::uint64_t fingerprint(TrainableParameters& parameters) {
  std::uint64_t hash = 14695981039346656037ULL;  // FNV-1a over the bits of all values
  for (int block = 0; block < parameters.table().block_count(); ++block) {
    for (const float value : block_values(parameters, block)) {
      hash = (hash ^ std::bit_cast<std::uint32_t>(value)) * 1099511628211ULL;
    }
  }
  return hash;
}

}  // namespace

TEST_CASE("training over n ranks: norm and AdamW of the summed gradients", "[replicated]") {
  Run run = all_ranks();
  Run alone(make_self_communicator());
  set_initial(*run.parameters);
  set_initial(*alone.parameters);
  Reference reference(run.parameters->table());
  for (int step = 0; step < 6; ++step) {
    INFO("step " << step << " on " << run.size() << " ranks");
    accumulate(run, step);
    accumulate(alone, step);
    const double norm = run.parameters->gradient_norm();
    const double expected = reference.accumulate(step);
    CHECK(std::abs(norm - expected) < 1e-6 * expected);
    CHECK(std::abs(alone.parameters->gradient_norm() - expected) < 1e-6 * expected);
    CHECK(same_everywhere(run, norm));
    if (step == 2) continue;  // a skipped step changes nothing, Adam's step count included
    const double scale = std::min(1.0, 20.0 / expected);
    run.parameters->update(settings_of(step), scale);
    alone.parameters->update(settings_of(step), scale);
    reference.update(settings_of(step), scale);
    CHECK(run.parameters->updates() == reference.updates);
    CHECK(largest_difference(*run.parameters, reference.parameter) < 1e-6);
    CHECK(largest_difference(*alone.parameters, reference.parameter) < 1e-6);
  }
  CHECK(same_everywhere(run, std::bit_cast<double>(fingerprint(*run.parameters) >> 2U)));
}

TEST_CASE("ranks without samples join with empty micro-batches", "[replicated]") {
  Run run = all_ranks();
  set_initial(*run.parameters);
  run.parameters->begin_step(2);
  for (int micro_batch = 0; micro_batch < 2; ++micro_batch) {
    for (int block = 0; block < run.parameters->table().block_count(); ++block) {
      if (run.rank() == 0 && micro_batch == 1) {
        const TensorView sum = run.parameters->accumulator(block);
        for (std::int64_t i = 0; i < sum.elements(); ++i) sum.as<float>()[i] += 0.5F;
      }
      run.parameters->ready(block);
    }
  }
  run.parameters->finish_gradients();
  const auto elements = static_cast<double>(run.parameters->table().total_elements());
  CHECK(run.parameters->gradient_norm() == Approx(0.5 * std::sqrt(elements)).epsilon(1e-12));
  // The gradients of the last step are gone in the next.
  run.parameters->begin_step(1);
  for (int block = 0; block < run.parameters->table().block_count(); ++block) run.parameters->ready(block);
  run.parameters->finish_gradients();
  CHECK(run.parameters->gradient_norm() == 0.0);
}

TEST_CASE("one element that is no number on one rank is seen by all", "[replicated]") {
  Run run = all_ranks();
  set_initial(*run.parameters);
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    run.parameters->begin_step(1);
    for (int block = 0; block < run.parameters->table().block_count(); ++block) {
      float* sum = run.parameters->accumulator(block).as<float>();
      if (block == 1 && run.rank() == run.size() - 1) sum[17] = bad;
      run.parameters->ready(block);
    }
    run.parameters->finish_gradients();
    const double norm = run.parameters->gradient_norm();
    CHECK_FALSE(std::isfinite(norm));
    CHECK(same_everywhere(run, std::isnan(norm) ? 1.0 : 2.0));
  }
}

TEST_CASE("bfloat16: the model reads the rounded master", "[replicated]") {
  Run run = all_ranks({.compute_dtype = DType::bfloat16});
  Run plain = all_ranks();
  set_initial(*run.parameters);
  set_initial(*plain.parameters);
  for (int step = 0; step < 2; ++step) {
    for (int block = 0; block < plain.parameters->table().block_count(); ++block) {
      const std::vector<float> master = block_values(*plain.parameters, block);
      const ConstTensorView copy = run.parameters->acquire(block);
      for (std::size_t i = 0; i < master.size(); ++i) {
        REQUIRE(copy.as<bfloat16>()[i].bits == bfloat16(master[i]).bits);
      }
      run.parameters->release(block);
    }
    for (Run* one : {&run, &plain}) {
      accumulate(*one, step);
      one->parameters->update(settings_of(step), 1.0);
    }
  }
}

TEST_CASE("owned parts cover the state once and carry a run on", "[replicated]") {
  Run first = all_ranks();
  set_initial(*first.parameters);
  for (int step = 0; step < 3; ++step) {
    accumulate(first, step);
    first.parameters->update(settings_of(step), 1.0);
  }
  Run second = all_ranks();
  std::int64_t owned = 0;
  for (int block = 0; block < first.parameters->table().block_count(); ++block) {
    const OwnedState from = first.parameters->owned(block);
    const OwnedState to = second.parameters->owned(block);
    REQUIRE(from.part.count == to.part.count);
    const auto bytes = static_cast<std::size_t>(from.part.count) * sizeof(float);
    std::memcpy(to.parameter.data(), from.parameter.data(), bytes);
    std::memcpy(to.first_moment.data(), from.first_moment.data(), bytes);
    std::memcpy(to.second_moment.data(), from.second_moment.data(), bytes);
    owned += from.part.count;
  }
  second.parameters->restore(first.parameters->updates());
  CHECK(fingerprint(*second.parameters) == fingerprint(*first.parameters));
  for (Run* run : {&first, &second}) {
    accumulate(*run, 3);
    run->parameters->update(settings_of(3), 1.0);
  }
  CHECK(fingerprint(*second.parameters) == fingerprint(*first.parameters));
  ControlChannel control(*first.communicator, first.device->communication_stream());
  CHECK(control.sum(owned) == first.parameters->table().total_elements());
}

TEST_CASE("rank 0 reads the values", "[replicated]") {
  Run run = all_ranks();
  set_initial(*run.parameters);
  int calls = 0;
  run.parameters->get_values([&](const BlockOnHost& blocks) {
    ++calls;
    CHECK(blocks(2).as<float>()[3] == initial(2, 3));
  });
  CHECK(calls == (run.rank() == 0 ? 1 : 0));
}

TEST_CASE("the memory that is planned is what is allocated", "[replicated]") {
  for (const TrainableParametersOptions options :
       {TrainableParametersOptions{}, {DType::bfloat16, true}, {DType::bfloat16, false}, {DType::float32, false}}) {
    for (const bool tied : {false, true}) {
      const Run run(make_self_communicator(), options, tied);
      const ParameterStateBytes planned = replicated_state_bytes(test::small_table(tied), options);
      auto held = run.device->memory().by_category();
      CHECK(held["parameters"] == planned.parameters);
      CHECK(held["gradients"] == planned.gradients);
      CHECK(held["optimizer state"] == planned.optimizer_state);
    }
  }
}

TEST_CASE("misuse is an error", "[replicated]") {
  Run run(make_self_communicator());
  TrainableParameters& parameters = *run.parameters;
  CHECK_THROWS_AS(parameters.release(0), RunFailure);
  CHECK_THROWS_AS(parameters.accumulator(0), RunFailure);
  CHECK_THROWS_AS(parameters.gradient_norm(), RunFailure);
  CHECK_THROWS_AS(parameters.update({}, 1.0), RunFailure);
  parameters.begin_step(1);
  CHECK_THROWS_AS(parameters.owned(0), RunFailure);
  CHECK_THROWS_AS(set_initial(parameters), RunFailure);
  parameters.ready(0);
  CHECK_THROWS_AS(parameters.ready(0), RunFailure);
  CHECK_THROWS_AS(parameters.accumulator(0), RunFailure);
  CHECK_THROWS_AS(parameters.finish_gradients(), RunFailure);
  Run evaluation(make_self_communicator(), {.training = false});
  CHECK_THROWS_AS(evaluation.parameters->begin_step(1), RunFailure);
  CHECK_THROWS_AS(Run(make_self_communicator(), {.compute_dtype = DType::float64}), RunFailure);
}

TEST_CASE("updating parts gives the bits of updating the whole", "[replicated]") {
  // What any sharding relies on: an element's result does not depend on where its vector begins.
  const auto device = make_cpu_device(1);
  constexpr std::int64_t elements = 1000;
  struct State {
    std::vector<float> parameter, gradient, first, second;
  };
  State whole;
  for (std::int64_t i = 0; i < elements; ++i) {
    whole.parameter.push_back(initial(1, i));
    whole.gradient.push_back(gradient(0, 0, 1, i));
    whole.first.push_back(gradient(0, 1, 1, i));
    whole.second.push_back(std::abs(gradient(0, 2, 1, i)));
  }
  State parts = whole;
  const auto update = [&](State& state, std::int64_t begin, std::int64_t count) {
    const auto view = [&](std::vector<float>& values) {
      return TensorView(values.data() + begin, DType::float32, 1, count);
    };
    device->ops().adamw(device->compute_stream(), {.parameter = view(state.parameter),
                                                   .gradient = view(state.gradient),
                                                   .first_moment = view(state.first),
                                                   .second_moment = view(state.second),
                                                   .compute_copy = {},
                                                   .learning_rate = 0.01,
                                                   .weight_decay = 0.1,
                                                   .gradient_scale = 0.7,
                                                   .step = 3});
  };
  update(whole, 0, elements);
  std::int64_t begin = 0;
  for (std::int64_t count = 1; begin < elements; ++count) {
    update(parts, begin, std::min(count, elements - begin));
    begin += count;
  }
  CHECK(whole.parameter == parts.parameter);
  CHECK(whole.first == parts.first);
  CHECK(whole.second == parts.second);
}
