// Training state over 1 to 4 ranks in every ZeRO stage: against AdamW by its definition in fp64 on the sum of all
// gradients, and against each other bit by bit.
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <optional>
#include <stdexcept>
#include <string>
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
        parameters(make_trainable_parameters(test::small_table(tied), options, *device, *communicator)) {}
  std::unique_ptr<Device> device = make_cpu_device(1);
  std::unique_ptr<Communicator> communicator;
  std::unique_ptr<TrainableParameters> parameters;

  int rank() const { return communicator->rank(); }
  int size() const { return communicator->size(); }
};

/// Where the training state lies.
struct Layout {
  int stage = 0;
  bool optimizer_on_host = false;
};
std::string name_of(Layout layout) {
  return fmt::format("stage {}{}", layout.stage, layout.optimizer_on_host ? ", optimizer on the host" : "");
}

constexpr Layout layouts[] = {{0, false}, {1, false}, {2, false}, {3, false},
                              {0, true},  {1, true},  {2, true},  {3, true}};

TrainableParametersOptions options_of(Layout layout, DType dtype = DType::float32) {
  return {.compute_dtype = dtype, .optimizer_on_host = layout.optimizer_on_host, .zero_stage = layout.stage};
}

Run all_ranks(TrainableParametersOptions options = {}, bool tied = false) {
  return Run(test::mpi_session().world(), options, tied);
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

/// Adds one sample's gradient (none: sample -1) to a block and readies it.
void add_gradient(TrainableParameters& parameters, int step, int sample, int block) {
  if (sample >= 0) {
    const TensorView sum = parameters.accumulator(block);
    for (std::int64_t i = 0; i < sum.elements(); ++i) sum.as<float>()[i] += gradient(step, sample, block, i);
  }
  parameters.ready(block);
}

/// The calls of a model for one micro-batch; `seen` is given every block that is acquired.
template <class Seen>
void micro_batch(TrainableParameters& parameters, int step, int sample, const Seen& seen) {
  const ParameterTable& table = parameters.table();
  const auto use = [&](int block) { seen(block, parameters.acquire(block)); };
  for (int block = 0; block <= table.final_norm_block(); ++block) {
    use(block);
    parameters.release(block);
  }
  use(table.head_block());
  parameters.release(table.head_block());
  if (table.head_block() != table.embedding_block()) add_gradient(parameters, step, sample, table.head_block());
  for (int block = table.final_norm_block(); block > table.embedding_block(); --block) {
    use(block);
    parameters.release(block);
    add_gradient(parameters, step, sample, block);
  }
  add_gradient(parameters, step, sample, table.embedding_block());
}

/// One micro-batch per sample; sample s belongs to rank s mod size.
void accumulate(Run& run, int step) {
  run.parameters->begin_step(samples / run.size());
  for (int sample = run.rank(); sample < samples; sample += run.size()) {
    micro_batch(*run.parameters, step, sample, [](int, const ConstTensorView&) {});
  }
  run.parameters->finish_gradients();
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

TEST_CASE("training over n ranks: norm and AdamW of the summed gradients", "[state]") {
  std::map<int, std::uint64_t> norm_bits;  // by step, of the first layout
  std::optional<std::uint64_t> final_bits;
  for (const Layout layout : layouts) {
    Run run = all_ranks(options_of(layout));
    set_initial(*run.parameters);
    Reference reference(run.parameters->table());
    for (int step = 0; step < 6; ++step) {
      INFO(name_of(layout) << ", step " << step << " on " << run.size() << " ranks");
      accumulate(run, step);
      const double norm = run.parameters->gradient_norm();
      const double expected = reference.accumulate(step);
      CHECK(std::abs(norm - expected) < 1e-6 * expected);
      CHECK(same_everywhere(run, norm));
      CHECK(norm_bits.try_emplace(step, std::bit_cast<std::uint64_t>(norm)).first->second ==
            std::bit_cast<std::uint64_t>(norm));
      if (step == 2) continue;  // a skipped step changes nothing, Adam's step count included
      const double scale = std::min(1.0, 20.0 / expected);
      run.parameters->update(settings_of(step), scale);
      reference.update(settings_of(step), scale);
      CHECK(run.parameters->updates() == reference.updates);
      CHECK(largest_difference(*run.parameters, reference.parameter) < 1e-6);
    }
    const std::uint64_t bits = fingerprint(*run.parameters);
    CHECK(same_everywhere(run, std::bit_cast<double>(bits >> 2U)));
    if (!final_bits) final_bits = bits;
    CHECK(bits == *final_bits);
  }
}

TEST_CASE("all stages show the model the same values and form the same sums, bit by bit", "[state]") {
  for (const DType dtype : {DType::float32, DType::bfloat16}) {
    for (const bool tied : {false, true}) {
      std::vector<Run> runs;
      for (const Layout layout : layouts) {
        runs.push_back(all_ranks(options_of(layout, dtype), tied));
        set_initial(*runs.back().parameters);
      }
      const auto bits_of = [](const ConstTensorView& view) {
        const auto* bytes = static_cast<const char*>(view.data());
        return std::string(bytes, bytes + view.elements() * size_of(view.dtype()));
      };
      for (int step = 0; step < 3; ++step) {
        std::vector<std::vector<std::string>> seen(runs.size());
        for (std::size_t i = 0; i < runs.size(); ++i) {
          Run& run = runs[i];
          run.parameters->begin_step(4);
          for (int turn = 0; turn < 4; ++turn) {
            const int sample = turn * run.size() + run.rank();
            const bool empty = (turn + step + run.rank()) % 3 == 0;
            micro_batch(*run.parameters, step, empty ? -1 : sample,
                        [&](int, const ConstTensorView& view) { seen[i].push_back(bits_of(view)); });
          }
          run.parameters->finish_gradients();
          for (int block = 0; block < run.parameters->table().block_count(); ++block) {
            seen[i].push_back(bits_of(run.parameters->owned(block).gradient));
          }
          run.parameters->update(settings_of(step), 0.5);
          // An evaluation: micro-batches without a backward.
          for (int block = 0; block < run.parameters->table().block_count(); ++block) {
            seen[i].push_back(bits_of(run.parameters->acquire(block)));
            run.parameters->release(block);
            seen[i].push_back(bits_of(run.parameters->owned(block).parameter));
            seen[i].push_back(bits_of(run.parameters->owned(block).second_moment));
          }
        }
        for (std::size_t i = 1; i < runs.size(); ++i) {
          INFO(name_of(layouts[i]) << ", " << name_of(dtype) << ", tied " << tied << ", step " << step);
          CHECK(seen[i] == seen[0]);
        }
      }
    }
  }
}

TEST_CASE("summing once a step gives the same gradients up to rounding", "[state]") {
  for (const Layout layout : {Layout{0, false}, Layout{1, false}, Layout{1, true}}) {
    TrainableParametersOptions options = options_of(layout);
    options.reduction = GradientReduction::once;
    Run run = all_ranks(options);
    set_initial(*run.parameters);
    Reference reference(run.parameters->table());
    for (int step = 0; step < 3; ++step) {
      accumulate(run, step);
      const double expected = reference.accumulate(step);
      CHECK(std::abs(run.parameters->gradient_norm() - expected) < 1e-6 * expected);
      run.parameters->update(settings_of(step), 1.0);
      reference.update(settings_of(step), 1.0);
      CHECK(largest_difference(*run.parameters, reference.parameter) < 1e-6);
    }
  }
}

TEST_CASE("ranks without samples join with empty micro-batches", "[state]") {
  for (const Layout layout : layouts) {
    Run run = all_ranks(options_of(layout));
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
}

TEST_CASE("one element that is no number on one rank is seen by all", "[state]") {
  for (const Layout layout : layouts) {
    Run run = all_ranks(options_of(layout));
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
}

TEST_CASE("bfloat16: the model reads the rounded master", "[state]") {
  for (const Layout layout : layouts) {
    Run run = all_ranks(options_of(layout, DType::bfloat16));
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
}

TEST_CASE("owned parts cover the state once and carry a run on, in any stage", "[state]") {
  Run first = all_ranks();
  set_initial(*first.parameters);
  for (int step = 0; step < 3; ++step) {
    accumulate(first, step);
    first.parameters->update(settings_of(step), 1.0);
  }
  ControlChannel control(*first.communicator, first.device->communication_stream());
  std::vector<Run> others;
  for (const Layout layout : layouts) {
    others.push_back(all_ranks(options_of(layout)));
    Run& second = others.back();
    std::int64_t owned = 0;
    for (int block = 0; block < first.parameters->table().block_count(); ++block) {
      const OwnedState from = first.parameters->owned(block);
      const OwnedState to = second.parameters->owned(block);
      REQUIRE(from.part.begin == to.part.begin);
      REQUIRE(from.part.count == to.part.count);
      const auto bytes = static_cast<std::size_t>(from.part.count) * sizeof(float);
      if (bytes > 0) std::memcpy(to.parameter.data(), from.parameter.data(), bytes);
      if (bytes > 0) std::memcpy(to.first_moment.data(), from.first_moment.data(), bytes);
      if (bytes > 0) std::memcpy(to.second_moment.data(), from.second_moment.data(), bytes);
      owned += from.part.count;
    }
    second.parameters->restore(first.parameters->updates());
    CHECK(fingerprint(*second.parameters) == fingerprint(*first.parameters));
    CHECK(control.sum(owned) == first.parameters->table().total_elements());
  }
  accumulate(first, 3);
  first.parameters->update(settings_of(3), 1.0);
  for (Run& second : others) {
    accumulate(second, 3);
    second.parameters->update(settings_of(3), 1.0);
    CHECK(fingerprint(*second.parameters) == fingerprint(*first.parameters));
  }
}

TEST_CASE("rank 0 reads the values, in any order", "[state]") {
  for (const Layout layout : layouts) {
    for (const bool training : {true, false}) {
      TrainableParametersOptions options = options_of(layout, DType::bfloat16);
      options.training = training;
      Run run = all_ranks(options);
      set_initial(*run.parameters);
      int calls = 0;
      run.parameters->get_values([&](const BlockOnHost& blocks) {
        ++calls;
        for (const int block : {2, 0, 2, 3, 4, 1}) {
          const TensorView values = blocks(block);
          bool same = values.elements() == run.parameters->table().block_elements(block);
          for (std::int64_t i = 0; i < values.elements(); ++i) {
            same = same && values.as<float>()[i] == initial(block, i);
          }
          CHECK(same);
        }
      });
      CHECK(calls == (run.rank() == 0 ? 1 : 0));
    }
  }
}

TEST_CASE("a failure while rank 0 reads the values leaves the others free", "[state]") {
  for (const Layout layout : layouts) {
    Run run = all_ranks(options_of(layout));
    set_initial(*run.parameters);
    const auto fail = [&](const BlockOnHost& blocks) {
      blocks(1);
      throw std::runtime_error("the disk is full");
    };
    if (run.rank() == 0) {
      CHECK_THROWS_AS(run.parameters->get_values(fail), std::runtime_error);
    } else {
      run.parameters->get_values(fail);
    }
    accumulate(run, 0);  // everybody is still in step
    CHECK(run.parameters->gradient_norm() > 0);
  }
}

TEST_CASE("values are set block by block in any order", "[state]") {
  // As a loader does that walks a file: back to a block that was left before.
  for (const Layout layout : layouts) {
    Run run = all_ranks(options_of(layout));
    run.parameters->set_values([&](const BlockOnHost& blocks) {
      for (const int half : {0, 1}) {
        for (int block = 0; block < run.parameters->table().block_count(); ++block) {
          const TensorView values = blocks(block);
          const std::int64_t middle = values.elements() / 2;
          for (std::int64_t i = half * middle; i < (half == 0 ? middle : values.elements()); ++i) {
            values.as<float>()[i] = initial(block, i);
          }
        }
      }
    });
    Run expected = all_ranks();
    set_initial(*expected.parameters);
    CHECK(fingerprint(*run.parameters) == fingerprint(*expected.parameters));
  }
}

TEST_CASE("the memory that is planned is what is allocated", "[state]") {
  for (const Layout layout : layouts) {
    for (const DType dtype : {DType::float32, DType::bfloat16}) {
      for (const bool training : {true, false}) {
        for (const bool tied : {false, true}) {
          TrainableParametersOptions options = options_of(layout, dtype);
          options.training = training;
          const Run run = all_ranks(options, tied);
          const auto planned = training_state_bytes(test::small_table(tied), options, run.size(), run.rank());
          std::map<std::string, std::int64_t> allocated = run.device->memory().by_category();
          for (const auto& [category, bytes] : run.device->host_memory().by_category()) allocated[category] = bytes;
          CHECK(allocated == planned);
        }
      }
    }
  }
}

TEST_CASE("each stage divides one more kind of memory", "[state]") {
  const ParameterTable table = test::small_table(false);
  const auto bytes_of = [&](Layout layout, const char* category) {
    auto all = training_state_bytes(table, options_of(layout, DType::bfloat16), 4, 0);
    return all[category];
  };
  const auto bytes = [&](int stage, const char* category) { return bytes_of({stage, false}, category); };
  const std::int64_t elements = table.total_elements();
  const std::int64_t blocks = table.block_count();
  const auto is_quarter = [&](std::int64_t actual, std::int64_t whole) {
    return actual >= whole / 4 && actual <= whole / 4 + 8 * blocks;
  };
  CHECK(bytes(0, "parameters") == 6 * elements);
  CHECK(bytes(0, "gradients") == 4 * elements + 8);
  CHECK(bytes(0, "optimizer state") == 8 * elements);
  CHECK(is_quarter(bytes(1, "parameters") - 2 * elements, 4 * elements));
  CHECK(bytes(1, "gradients") == 4 * elements + 8);
  CHECK(is_quarter(bytes(1, "optimizer state"), 8 * elements));
  CHECK(is_quarter(bytes(2, "gradients") - 8, 4 * elements));
  CHECK(is_quarter(bytes(3, "parameters"), 6 * elements));
  // One embedding, one final norm, two layers.
  const std::int64_t slots = table.block_elements(0) + table.block_elements(table.final_norm_block()) +
                             2 * table.block_elements(table.layer_block(0));
  CHECK(bytes(2, "gradient buffers") == 4 * slots);
  CHECK(bytes(2, "gathered parameters") == 0);
  CHECK(bytes(3, "gathered parameters") == 2 * slots);
  // Master, moments, gradients and a copy in bfloat16 on the host; nothing but that copy stays on the device.
  CHECK(bytes_of({0, true}, "optimizer on host") == (4 + 8 + 4 + 2) * elements);
  CHECK(bytes_of({0, true}, "parameters") == 2 * elements);
  CHECK(bytes_of({0, true}, "optimizer state") == 0);
  CHECK(is_quarter(bytes_of({3, true}, "optimizer on host"), (4 + 8 + 4 + 2) * elements));
  CHECK(is_quarter(bytes_of({3, true}, "parameters"), 2 * elements));
}

TEST_CASE("misuse is an error", "[state]") {
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
  CHECK_THROWS_AS(Run(make_self_communicator(), {.zero_stage = 4}), RunFailure);
  if (test::mpi_session().size() > 1) {
    CHECK_THROWS_AS(all_ranks({.zero_stage = 2, .reduction = GradientReduction::once}), RunFailure);
  }
}

TEST_CASE("updating parts gives the bits of updating the whole", "[state]") {
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
