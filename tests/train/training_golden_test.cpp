// 20 steps of AdamW with clipping and a cosine schedule against PyTorch (tests/data/model/README.md, "adamw").
#include <algorithm>
#include <cmath>
#include <cstring>

#include "loaded_training.h"
#include "skrull/device/ops.h"
#include "skrull/model/safetensors.h"
#include "skrull/train/learning_rate.h"
#include "skrull/train/step.h"
#include "support/catch.h"

using namespace skrull;
namespace fs = std::filesystem;

namespace {

const fs::path golden_folder = test::test_data("model") / "adamw";

template <class T>
std::vector<T> read(const SafetensorsReader& reader, const std::string& name) {
  const StoredTensor* tensor = reader.find(name);
  REQUIRE(tensor != nullptr);
  REQUIRE(tensor->dtype == dtype_of<T>);
  std::vector<T> values(tensor->bytes.size() / sizeof(T));
  std::memcpy(values.data(), tensor->bytes.data(), tensor->bytes.size());
  return values;
}

/// The golden sequences as rows. A row's labels are not shifted, the file's are: they move one place right. Sequences
/// without a label, which the token store would leave out, are left out here.
struct GoldenRows {
  std::vector<test::TokenRow> rows;
  std::vector<std::vector<std::int64_t>> steps;  ///< rows of each step
};

GoldenRows golden_rows(const SafetensorsReader& golden, std::int64_t sequences_per_step) {
  const auto ids = read<std::int32_t>(golden, "input_ids");
  const auto labels = read<std::int32_t>(golden, "labels");
  GoldenRows result;
  std::ptrdiff_t begin = 0;
  std::int64_t sequence = 0;
  for (const std::int32_t length : read<std::int32_t>(golden, "sequence_lengths")) {
    const std::ptrdiff_t end = begin + length;
    test::TokenRow row;
    row.ids.assign(ids.begin() + begin, ids.begin() + end);
    row.labels = std::vector<std::int32_t>{-100};
    row.labels->insert(row.labels->end(), labels.begin() + begin, labels.begin() + end - 1);
    if (sequence++ % sequences_per_step == 0) result.steps.emplace_back();
    const bool trained = std::any_of(row.labels->begin(), row.labels->end(), [](int label) { return label != -100; });
    if (trained) {
      result.steps.back().push_back(static_cast<std::int64_t>(result.rows.size()));
      result.rows.push_back(std::move(row));
    }
    begin = end;
  }
  return result;
}

}  // namespace

TEST_CASE("20 steps reproduce torch's losses, gradient norms, learning rates and parameters", "[golden]") {
  test::TrainingFixture fixture;
  const Json settings = read_json_file(golden_folder / "settings.json");
  const SafetensorsReader golden(golden_folder / "training.safetensors");
  const GoldenRows rows = golden_rows(golden, settings.at("sequences_per_step"));
  REQUIRE(rows.steps.size() == settings.at("steps").get<std::size_t>());

  test::Overrides overrides = {"lr_scheduler_type=cosine",
                               "dataset=" + fixture.write("rows.jsonl", rows.rows).string()};
  for (const char* key :
       {"learning_rate", "warmup_steps", "adam_beta1", "adam_beta2", "adam_epsilon", "weight_decay", "max_grad_norm"}) {
    overrides.push_back(fmt::format("{}={}", key, settings.at(key).dump()));
  }
  const std::int64_t bucket = GENERATE(40, 1000);
  test::LoadedTraining run(fixture.config("run", overrides), bucket, fixture / "cache");
  REQUIRE(run.store->size() == static_cast<std::int64_t>(rows.rows.size()));
  const LearningRatePlan learning_rates = plan_learning_rate(run.config, settings.at("steps"));

  const auto loss = read<float>(golden, "loss");
  const auto grad_norm = read<float>(golden, "grad_norm");
  const auto learning_rate = read<float>(golden, "learning_rate");
  for (std::size_t step = 0; step < rows.steps.size(); ++step) {
    INFO("step " << step);
    const double rate = learning_rate_at(learning_rates, static_cast<std::int64_t>(step));
    CHECK(rate == Approx(learning_rate[step]).epsilon(1e-6));
    const StepOutcome outcome =
        run_step(test::one_rank_step(*run.store, rows.steps[step], bucket), run.config, rate, run.model,
                 run.state.parameters(), run.attention, run.rank.device(), run.rank.control());
    CHECK(outcome.updated);
    CHECK(outcome.loss == Approx(loss[step]).epsilon(1e-5));
    CHECK(outcome.grad_norm == Approx(grad_norm[step]).epsilon(1e-5));
  }
  CHECK(run.state.parameters().updates() == 20);

  run.state.export_model(run.config, {}, run.rank.control(),
                         [&](const WriteFolder& write) { write(fixture / "exported"); });
  const auto weights = test::read_weights(fixture / "exported");
  std::map<std::string, std::vector<float>> expected;
  for (const auto& [name, values] : weights) expected[name] = read<float>(golden, "final." + name);
  CHECK(test::largest_relative_difference(weights, expected) < 5e-5);
}

TEST_CASE("the optimizer alone reproduces torch's values and moments", "[golden]") {
  const Json settings = read_json_file(golden_folder / "settings.json");
  const SafetensorsReader golden(golden_folder / "optimizer.safetensors");
  const auto grad_norm = read<float>(golden, "grad_norm");
  const auto learning_rate = read<float>(golden, "learning_rate");
  const auto device = make_cpu_device(1);
  for (const std::string name : {"matrix", "bias"}) {
    const auto start = read<float>(golden, "start." + name);
    const auto gradients = read<float>(golden, "grad." + name);
    const auto values = read<float>(golden, "value." + name);
    const auto n = static_cast<std::int64_t>(start.size());
    const Buffer parameter = device->allocate(DType::float32, 1, n, "test");
    const Buffer gradient = device->allocate(DType::float32, 1, n, "test");
    const Buffer first = device->allocate(DType::float32, 1, n, "test");
    const Buffer second = device->allocate(DType::float32, 1, n, "test");
    const auto view = [&](const Buffer& buffer) { return buffer.view(DType::float32, 1, n); };
    const auto check_close = [&](const Buffer& buffer, const float* expected) {
      for (std::int64_t i = 0; i < n; ++i) {
        CHECK(view(buffer).as<float>()[i] == Approx(expected[i]).epsilon(2e-5).margin(1e-7));
      }
    };
    std::memcpy(parameter.data(), start.data(), start.size() * sizeof(float));
    for (std::size_t step = 0; step < grad_norm.size(); ++step) {
      INFO(name << ", step " << step);
      std::memcpy(gradient.data(), gradients.data() + step * start.size(), start.size() * sizeof(float));
      AdamW update;
      update.parameter = view(parameter);
      update.gradient = view(gradient);
      update.first_moment = view(first);
      update.second_moment = view(second);
      update.learning_rate = learning_rate[step];
      update.beta1 = settings.at("adam_beta1");
      update.beta2 = settings.at("adam_beta2");
      update.epsilon = settings.at("adam_epsilon");
      update.weight_decay = name == "matrix" ? settings.at("weight_decay").get<double>() : 0.0;
      update.gradient_scale = clip_coefficient(grad_norm[step], settings.at("max_grad_norm"));
      update.step = static_cast<std::int64_t>(step) + 1;
      device->ops().adamw(device->compute_stream(), update);
      device->compute_stream().synchronize();
      check_close(parameter, values.data() + step * start.size());
    }
    check_close(first, read<float>(golden, "exp_avg." + name).data());
    check_close(second, read<float>(golden, "exp_avg_sq." + name).data());
  }
}
