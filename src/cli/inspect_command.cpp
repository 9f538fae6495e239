// skrull inspect: what a checkpoint holds, and whether it is as it was written.

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <map>

#include "cli_parse.h"
#include "commands.h"
#include "skrull/core/error.h"
#include "skrull/core/json.h"
#include "skrull/core/text.h"
#include "skrull/model/safetensors.h"
#include "skrull/train/checkpoint.h"
#include "skrull/train/run_folder.h"
#include "skrull/train/trainer_state.h"

namespace skrull::cli {
namespace {
namespace fs = std::filesystem;

/// The folder itself, or the newest checkpoint of a run's output_dir.
fs::path checkpoint_in(const fs::path& folder) {
  if (!fs::is_directory(folder)) throw_invalid_input("skrull inspect: {}: there is no such folder", folder.string());
  if (fs::exists(folder / manifest_file)) return folder;
  const RunFolder run(folder);
  const std::vector<std::int64_t> steps = run.checkpoints();
  return steps.empty() ? folder : run.checkpoint_folder(steps.back());
}

struct FileReport {
  FileRecord record;
  std::string problem;  ///< "" when it is as it was written
};

std::vector<FileReport> check_files(const fs::path& folder, const Manifest& manifest) {
  std::vector<FileReport> reports;
  for (const FileRecord& record : manifest.files) reports.push_back({record, damage_of(folder, record)});
  return reports;
}

/// The element type of most of the model's bytes.
std::string model_dtype(const fs::path& folder) {
  std::map<DType, std::size_t> bytes;
  const SafetensorsReader reader(folder);
  for (const StoredTensor& tensor : reader.tensors()) bytes[tensor.dtype] += tensor.bytes.size();
  const auto most = std::max_element(bytes.begin(), bytes.end(), [](auto& a, auto& b) { return a.second < b.second; });
  return most == bytes.end() ? "" : std::string(name_of(most->first));
}

OrderedJson number(double value) {
  return std::isfinite(value) ? OrderedJson(value) : OrderedJson(nullptr);
}

OrderedJson describe(const fs::path& folder, const Manifest& manifest, const TrainerState& state) {
  return {{"checkpoint", folder.string()},
          {"step", manifest.step},
          {"total_steps", state.total_steps},
          {"epoch", static_cast<double>(state.step) / static_cast<double>(state.steps_per_epoch)},
          {"resumable", manifest.resumable},
          {"evaluation_due", state.evaluation_due},
          {"ranks", state.ranks},
          {"context_parallel_size", state.context_parallel},
          {"global_batch_size", state.global_batch_size},
          {"parameters", state.model.parameter_count()},
          {"dtype", model_dtype(folder)},
          {"updates", state.updates},
          {"skipped_steps", state.skipped_steps},
          {"tokens", state.tokens},
          {"loss", number(state.loss)},
          {"eval_loss", number(state.eval_loss)},
          {"data_fingerprint", state.data_fingerprint}};
}

void print_for_people(const OrderedJson& description, const std::vector<FileReport>& files) {
  for (const auto& [key, value] : description.items()) {
    std::printf("%-22s %s\n", key.c_str(), value.is_string() ? value.get<std::string>().c_str() : value.dump().c_str());
  }
  std::printf("files:\n");
  for (const FileReport& file : files) {
    std::printf("  %-40s %12s  %s\n", file.record.name.c_str(), format_bytes(file.record.bytes()).c_str(),
                file.problem.empty() ? "ok" : file.problem.c_str());
  }
}

void print_json(OrderedJson description, const std::vector<FileReport>& files) {
  OrderedJson list = OrderedJson::array();
  bool valid = true;
  for (const FileReport& file : files) {
    valid = valid && file.problem.empty();
    OrderedJson entry = {{"name", file.record.name}, {"bytes", file.record.bytes()}, {"ok", file.problem.empty()}};
    if (!file.problem.empty()) entry["problem"] = file.problem;
    list.push_back(std::move(entry));
  }
  description["valid"] = valid;
  description["files"] = std::move(list);
  std::printf("%s\n", description.dump().c_str());
}

}  // namespace

int inspect(const Arguments& arguments) {
  std::string folder;
  bool json = false;
  CLI::App app("Checks every file of a checkpoint and says what it holds. Exit code 1 when a file is damaged.",
               "skrull inspect");
  app.add_option("folder", folder, "a checkpoint, or an output_dir: its newest checkpoint")->required();
  app.add_flag("--json", json, "print one JSON object");
  if (!parse(app, arguments)) return static_cast<int>(ExitCode::done);

  const fs::path checkpoint = checkpoint_in(folder);
  Manifest manifest;
  try {
    manifest = read_manifest(checkpoint);
  } catch (const InvalidInput& error) {
    throw_run_failure("{}", error.what());
  }
  const std::vector<FileReport> files = check_files(checkpoint, manifest);
  const auto damaged =
      std::find_if(files.begin(), files.end(), [](const FileReport& file) { return !file.problem.empty(); });
  OrderedJson description = {{"checkpoint", checkpoint.string()}, {"step", manifest.step}};
  if (damaged == files.end()) {
    description = describe(checkpoint, manifest, read_trainer_state(checkpoint / trainer_state_file));
  }
  if (json) {
    print_json(std::move(description), files);
  } else {
    print_for_people(description, files);
  }
  if (damaged == files.end()) return static_cast<int>(ExitCode::done);
  throw_run_failure("{}", damaged->problem);
}

}  // namespace skrull::cli
