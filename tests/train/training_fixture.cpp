#include "training_fixture.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>

#include "skrull/config/config_parser.h"
#include "skrull/core/error.h"
#include "skrull/core/log.h"
#include "skrull/core/rng.h"
#include "skrull/model/safetensors.h"
#include "support/catch.h"

namespace skrull::test {
namespace fs = std::filesystem;
namespace {

std::vector<float> to_floats(const StoredTensor& tensor) {
  if (tensor.dtype == DType::float32) {
    std::vector<float> values(tensor.bytes.size() / sizeof(float));
    std::memcpy(values.data(), tensor.bytes.data(), tensor.bytes.size());
    return values;
  }
  require(tensor.dtype == DType::bfloat16, "{}: {} can't be compared", tensor.name, name_of(tensor.dtype));
  std::vector<float> values(tensor.bytes.size() / 2);
  for (std::size_t i = 0; i < values.size(); ++i) {
    char bits[4] = {0, 0, tensor.bytes[2 * i], tensor.bytes[2 * i + 1]};
    std::memcpy(&values[i], bits, sizeof bits);
  }
  return values;
}

}  // namespace

void check_same(const std::vector<double>& values, const std::vector<double>& expected, double tolerance) {
  REQUIRE(values.size() == expected.size());
  for (std::size_t i = 0; i < values.size(); ++i) CHECK(values[i] == Approx(expected[i]).epsilon(tolerance));
}

void check_same_run(const TrainingFixture& fixture, const std::string& output, const std::string& expected) {
  const MetricsRows metrics = fixture.metrics(output);
  const MetricsRows reference = fixture.metrics(expected);
  for (const char* exact : {"tokens", "trained_tokens", "learning_rate", "epoch"}) {
    CHECK(metrics.of_steps(exact) == reference.of_steps(exact));
  }
  check_same(metrics.of_steps("loss"), reference.of_steps("loss"), 1e-5);
  check_same(metrics.of_steps("grad_norm"), reference.of_steps("grad_norm"), 1e-5);
  CHECK(largest_relative_difference(read_weights(fixture / output), read_weights(fixture / expected)) < 1e-4);
}

std::string to_json_lines(const std::vector<TokenRow>& rows) {
  std::string lines;
  for (const TokenRow& row : rows) {
    Json value = {{"input_ids", row.ids}};
    if (row.labels) value["labels"] = *row.labels;
    lines += value.dump() + "\n";
  }
  return lines;
}

std::vector<TokenRow> random_rows(std::uint64_t seed, std::size_t count, std::int64_t longest,
                                  std::int64_t vocab_size) {
  Rng rng(seed, "rows");
  std::vector<TokenRow> rows;
  for (std::size_t i = 0; i < count; ++i) {
    TokenRow row;
    const auto length = 2 + rng.below(static_cast<std::uint64_t>(longest - 1));
    for (std::uint64_t t = 0; t < length; ++t) {
      row.ids.push_back(static_cast<std::int32_t>(rng.below(static_cast<std::uint64_t>(vocab_size))));
    }
    if (i % 3 == 2) {
      row.labels = row.ids;
      std::fill_n(row.labels->begin(), length / 2, -100);
    }
    rows.push_back(std::move(row));
  }
  return rows;
}

std::map<std::string, std::vector<float>> read_weights(const fs::path& file_or_folder) {
  const SafetensorsReader reader(file_or_folder);
  std::map<std::string, std::vector<float>> weights;
  for (const StoredTensor& tensor : reader.tensors()) weights[tensor.name] = to_floats(tensor);
  return weights;
}

double largest_relative_difference(const std::map<std::string, std::vector<float>>& a,
                                   const std::map<std::string, std::vector<float>>& b) {
  require(a.size() == b.size(), "{} and {} tensors to compare", a.size(), b.size());
  double largest = 0;
  for (const auto& [name, values] : a) {
    const std::vector<float>& others = b.at(name);
    require(values.size() == others.size(), "{}: {} and {} values to compare", name, values.size(), others.size());
    double difference = 0;
    double size = 0;
    for (std::size_t i = 0; i < values.size(); ++i) {
      difference += std::pow(static_cast<double>(values[i]) - static_cast<double>(others[i]), 2);
      size += std::pow(static_cast<double>(others[i]), 2);
    }
    largest = std::max(largest, std::sqrt(difference / size));
  }
  return largest;
}

void write_edited_model(const fs::path& folder, const fs::path& source,
                        const std::function<void(ModelTensors&)>& edit) {
  fs::create_directories(folder);
  fs::copy(source / "config.json", folder / "config.json", fs::copy_options::overwrite_existing);
  ModelTensors tensors;
  const SafetensorsReader reader(source);
  for (const StoredTensor& tensor : reader.tensors()) tensors[tensor.name] = {tensor.shape, to_floats(tensor)};
  edit(tensors);
  std::vector<TensorToWrite> to_write;
  for (const auto& [name, tensor] : tensors) {
    const float* values = tensor.values.data();
    to_write.push_back({name, DType::float32, tensor.shape, [values](std::int64_t first, std::span<char> target) {
                          std::memcpy(target.data(), values + first, target.size());
                        }});
  }
  write_safetensors(folder, to_write);
}

Overrides joined(Overrides options, const Overrides& more) {
  options.insert(options.end(), more.begin(), more.end());
  return options;
}

std::vector<double> MetricsRows::of_steps(const std::string& field) const {
  std::vector<double> values;
  values.reserve(steps.size());
  for (const Json& row : steps) values.push_back(row.at(field).is_null() ? NAN : row.at(field).get<double>());
  return values;
}

std::string MetricsRows::without_measurements() const {
  std::string text;
  for (const std::vector<Json>* rows : {&steps, &evaluations}) {
    for (Json row : *rows) {
      for (const char* field :
           {"tokens_per_second", "trained_tokens_per_second", "step_seconds", "mfu", "peak_memory_bytes",
            "peak_device_memory_bytes", "eta_seconds", "eval_seconds", "schedule_seconds", "schedule_wait_seconds",
            "comm_seconds", "comm_exposed_seconds", "imbalance"}) {
        row.erase(field);
      }
      text += row.dump() + "\n";
    }
  }
  return text;
}

MetricsRows read_metrics(const fs::path& output_dir) {
  MetricsRows rows;
  std::istringstream stream(read_file(output_dir / "metrics.jsonl"));
  std::string line;
  while (std::getline(stream, line)) {
    Json row = Json::parse(line);
    (row.contains("eval_loss") ? rows.evaluations : rows.steps).push_back(std::move(row));
  }
  return rows;
}

TrainingFixture::TrainingFixture() {
  log::set_verbose(false);
  ::setenv("SKRULL_CACHE", (folder_ / "cache").c_str(), 1);
}

fs::path TrainingFixture::write(const std::string& name, const std::string& content) {
  fs::create_directories((folder_ / name).parent_path());
  std::ofstream(folder_ / name, std::ios::binary) << content;
  return folder_ / name;
}

fs::path TrainingFixture::write(const std::string& name, const std::vector<TokenRow>& rows) {
  return write(name, to_json_lines(rows));
}

std::vector<std::string> TrainingFixture::arguments(const std::string& command, const std::string& output,
                                                    const Overrides& overrides) const {
  std::vector<std::string> all = {command, "model_name_or_path=" + tiny_model(),
                                  "output_dir=" + (folder_ / output).string()};
  all.insert(all.end(), overrides.begin(), overrides.end());
  return all;
}

CommandResult TrainingFixture::run(const std::string& output, const Overrides& overrides, int ranks) const {
  return run_skrull(arguments("train", output, overrides), ranks);
}

CommandResult TrainingFixture::evaluate(const Overrides& overrides, int ranks) const {
  return run_skrull(arguments("eval", "eval", overrides), ranks);
}

TrainConfig TrainingFixture::config(const std::string& output, const Overrides& overrides) const {
  const std::vector<std::string> all = arguments("train", output, overrides);
  return parse_config(read_arguments({all.begin() + 1, all.end()}), {"model_name_or_path"});
}

TrainSummary TrainingFixture::run_here(const std::string& output, const Overrides& overrides) const {
  return train(config(output, overrides), MpiSession::alone());
}

EvalResult TrainingFixture::evaluate_here(const Overrides& overrides) const {
  return skrull::evaluate(config("eval", overrides), MpiSession::alone());
}

std::string tiny_model(const std::string& name) {
  return test_data("model") / name;
}

Json result_of(const CommandResult& result) {
  require(result.exit_code == 0, "exit code {}: {}", result.exit_code, result.errors);
  const std::size_t end = result.output.find_last_not_of('\n');
  require(end != std::string::npos, "no result on standard output");
  const std::size_t begin = result.output.rfind('\n', end);
  return Json::parse(result.output.substr(begin == std::string::npos ? 0 : begin + 1));
}

}  // namespace skrull::test
