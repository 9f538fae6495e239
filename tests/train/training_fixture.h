#pragma once
// Runs of the trainer for tests: data files, runs on any number of ranks, and what they leave behind.

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "skrull/comm/mpi_session.h"
#include "skrull/config/train_config.h"
#include "skrull/core/error.h"
#include "skrull/core/json.h"
#include "skrull/train/trainer.h"
#include "support/support.h"

namespace skrull::test {

/// An `input_ids` row; without labels all its tokens are trained.
struct TokenRow {
  std::vector<std::int32_t> ids;
  std::optional<std::vector<std::int32_t>> labels = std::nullopt;  ///< not shifted
};

/// The rows as JSON Lines.
std::string to_json_lines(const std::vector<TokenRow>& rows);

/// `count` rows of 2 to `longest` tokens below `vocab_size`, drawn by seed; every third has a prompt that is not
/// trained.
std::vector<TokenRow> random_rows(std::uint64_t seed, std::size_t count, std::int64_t longest, std::int64_t vocab_size);

/// Values of every tensor of a safetensors file or model folder, as float32, by name.
std::map<std::string, std::vector<float>> read_weights(const std::filesystem::path& file_or_folder);

/// Largest |a - b| / (|b| in the 2-norm of its tensor), over all tensors. Throws when the names or sizes differ.
double largest_relative_difference(const std::map<std::string, std::vector<float>>& a,
                                   const std::map<std::string, std::vector<float>>& b);

/// A tensor to be stored as float32.
struct TensorValues {
  std::vector<std::int64_t> shape;
  std::vector<float> values;
};
using ModelTensors = std::map<std::string, TensorValues>;

/// Copies a model folder, its tensors changed by `edit`, to `folder`, which is made.
void write_edited_model(const std::filesystem::path& folder, const std::filesystem::path& source,
                        const std::function<void(ModelTensors&)>& edit);

/// Rows of metrics.jsonl.
struct MetricsRows {
  std::vector<Json> steps;
  std::vector<Json> evaluations;

  /// The value of one field in every step.
  std::vector<double> of_steps(const std::string& field) const;
  /// All rows as text, without the fields that depend on the clock or the process.
  std::string without_measurements() const;
};

MetricsRows read_metrics(const std::filesystem::path& output_dir);

using Overrides = std::vector<std::string>;  ///< key=value ...; the last one wins

Overrides joined(Overrides options, const Overrides& more);

/// A temporary folder with data, a token cache and the output folders of runs.
class TrainingFixture {
 public:
  TrainingFixture();

  /// Writes a file, `name` may lead into a folder; its path.
  std::filesystem::path write(const std::string& name, const std::string& content);
  std::filesystem::path write(const std::string& name, const std::vector<TokenRow>& rows);

  /// "train" or "eval" with these options as the arguments of the program; `output` (a name within the folder) becomes
  /// output_dir.
  std::vector<std::string> arguments(const std::string& command, const std::string& output,
                                     const Overrides& overrides) const;

  /// Runs the program under mpirun (ranks 0: without it).
  CommandResult run(const std::string& output, const Overrides& overrides, int ranks = 0) const;
  CommandResult evaluate(const Overrides& overrides, int ranks = 0) const;

  /// The same within this process, as one rank; throws what the trainer throws.
  TrainSummary run_here(const std::string& output, const Overrides& overrides) const;
  EvalResult evaluate_here(const Overrides& overrides) const;
  TrainConfig config(const std::string& output, const Overrides& overrides) const;

  MetricsRows metrics(const std::string& output) const { return read_metrics(folder_ / output); }
  std::filesystem::path operator/(const std::string& name) const { return folder_ / name; }

 private:
  TemporaryFolder folder_;
};

/// The same numbers within a relative `tolerance`.
void check_same(const std::vector<double>& values, const std::vector<double>& expected, double tolerance);

/// Two runs of one training, laid out differently: the same counts and learning rates, losses and gradient norms within
/// 1e-5, weights within 1e-4.
void check_same_run(const TrainingFixture& fixture, const std::string& output, const std::string& expected);

/// The tiny model of tests/data/model with this name.
std::string tiny_model(const std::string& name = "tied_mha_d16");

/// The JSON object on the last line of standard output. Throws when there is none.
Json result_of(const CommandResult& result);

/// How `work` failed: exit code 0 when it did not.
struct Failure {
  int exit_code = 0;
  std::string message;
};

template <class Work>
Failure failure_of(Work&& work) {
  try {
    work();
  } catch (const Error& error) {
    return {static_cast<int>(error.exit_code()), error.what()};
  }
  return {};
}

inline bool contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

}  // namespace skrull::test
