#include "skrull/train/run_folder.h"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <optional>
#include <string>
#include <vector>

#include "skrull/config/config_docs.h"
#include "skrull/core/error.h"
#include "skrull/core/file.h"
#include "skrull/model/model_io.h"

namespace skrull {
namespace fs = std::filesystem;
namespace {

constexpr std::string_view checkpoint_prefix = "checkpoint-";
constexpr std::string_view temporary_prefix = ".saving-";
constexpr const char* cache_name = "cache";

/// Step of a complete checkpoint folder's name, or nothing.
std::optional<std::int64_t> checkpoint_step(const std::string& name) {
  if (!name.starts_with(checkpoint_prefix)) return std::nullopt;
  std::int64_t step = 0;
  const char* end = name.data() + name.size();
  const auto [stop, problem] = std::from_chars(name.data() + checkpoint_prefix.size(), end, step);
  return problem == std::errc{} && stop == end ? std::optional(step) : std::nullopt;
}

/// What makes a folder of weights one that loads.
bool makes_weights_load(const std::string& name) {
  return name == "config.json" || name == "model.safetensors.index.json";
}

/// A file or folder that a run leaves in its output_dir beside the model.
bool is_record_of_a_run(const std::string& name) {
  return name == "args.json" || name == "metrics.jsonl" || name == "run.log" || name == "trace.json" ||
         checkpoint_step(name).has_value() || name.starts_with(temporary_prefix);
}

/// Throws when the run reads `input`, which `what` names, from where it writes.
void check_input(const fs::path& output, const fs::path& input, const char* what) {
  std::error_code problem;
  if (fs::equivalent(output, input, problem)) {
    throw_invalid_input("output_dir: {} is the {} itself, which training would overwrite; choose another folder",
                        output.string(), what);
  }
  const fs::path inside = fs::canonical(input, problem).lexically_relative(fs::canonical(output, problem));
  if (problem || inside.empty()) return;
  const std::string entry = inside.begin()->string();
  if (is_record_of_a_run(entry) || is_model_file(entry)) {
    throw_invalid_input(
        "output_dir: the {} {} is part of an earlier run there, which this run would remove; choose another output_dir",
        what, input.string());
  }
}

std::vector<fs::path> entries_of(const fs::path& folder) {
  std::vector<fs::path> entries;
  for (const auto& entry : fs::directory_iterator(folder)) entries.push_back(entry.path());
  return entries;
}

/// Runs `write` on a fresh folder `temporary`; removes it when that throws.
void write_temporary_folder(const fs::path& temporary, const std::function<void(const fs::path&)>& write) {
  try {
    fs::remove_all(temporary);
    fs::create_directories(temporary);
    write(temporary);
    sync_folder(temporary);
  } catch (const fs::filesystem_error& error) {
    throw_run_failure("{}: can't be written: {}", temporary.string(), error.code().message());
  } catch (...) {
    std::error_code ignored;
    fs::remove_all(temporary, ignored);
    throw;
  }
}

}  // namespace

void RunFolder::check(const TrainConfig& config) const {
  std::error_code problem;
  fs::create_directories(path_, problem);
  if (problem || ::access(path_.c_str(), W_OK | X_OK) != 0) {
    throw_invalid_input("output_dir: {} can't be written ({}); choose another folder or mend its permissions",
                        path_.string(), problem ? problem.message() : "no permission");
  }
  check_input(path_, config.model_name_or_path, "model folder");
  check_input(path_, tokenizer_folder(config), "tokenizer folder");
  for (const fs::path& file : config.dataset) check_input(path_, file, "data file");
  for (const fs::path& file : config.eval_dataset) check_input(path_, file, "data file");
  if (config.overwrite_output_dir) return;
  for (const auto& entry : fs::directory_iterator(path_)) {
    if (entry.path().filename() == cache_name) continue;
    throw_invalid_input(
        "output_dir: {} is not empty (it holds {}); nothing was overwritten. Choose another output_dir, or set "
        "overwrite_output_dir to replace an earlier run",
        path_.string(), entry.path().filename().string());
  }
}

void RunFolder::begin(const TrainConfig& config) const {
  for (const fs::path& entry : entries_of(path_)) {
    if (is_record_of_a_run(entry.filename().string())) fs::remove_all(entry);
  }
  write_file_atomically(path_ / "args.json", config_to_json(config));
}

fs::path RunFolder::cache_folder() const {
  const char* chosen = std::getenv("SKRULL_CACHE");
  if (chosen != nullptr && *chosen != '\0') return chosen;
  if (path_.empty()) return fs::temp_directory_path() / fmt::format("skrull-cache-{}", ::getuid());
  return path_ / cache_name;
}

fs::path RunFolder::checkpoint_folder(std::int64_t step) const {
  return path_ / (std::string(checkpoint_prefix) + std::to_string(step));
}

void RunFolder::save_checkpoint(std::int64_t step, std::int64_t total_limit,
                                const std::function<void(const fs::path&)>& write) const {
  const fs::path temporary = path_ / fmt::format("{}{}{}", temporary_prefix, checkpoint_prefix, step);
  write_temporary_folder(temporary, write);
  const fs::path final_folder = checkpoint_folder(step);
  std::error_code problem;
  fs::remove_all(final_folder, problem);
  fs::rename(temporary, final_folder, problem);
  if (problem) throw_run_failure("{}: can't be completed: {}", final_folder.string(), problem.message());
  sync_folder(path_);
  if (total_limit <= 0) return;

  std::vector<std::int64_t> steps;
  for (const auto& entry : fs::directory_iterator(path_)) {
    if (const auto found = checkpoint_step(entry.path().filename().string())) steps.push_back(*found);
  }
  std::sort(steps.begin(), steps.end());
  for (std::size_t i = 0; i + static_cast<std::size_t>(total_limit) < steps.size(); ++i) {
    fs::remove_all(checkpoint_folder(steps[i]));
  }
}

void RunFolder::save_final(const std::function<void(const fs::path&)>& write) const {
  const fs::path temporary = path_ / fmt::format("{}model", temporary_prefix);
  write_temporary_folder(temporary, write);
  const std::vector<fs::path> files = entries_of(temporary);
  for (const fs::path& file : files) {
    if (!fs::is_directory(path_ / file.filename())) continue;
    throw_run_failure("{}: a folder stands where the model's file belongs; the trained model lies in {}",
                      (path_ / file.filename()).string(), temporary.string());
  }
  try {
    // An earlier model stays until the new one is complete on the disk. From here on a folder that holds files of both
    // must not load: what makes it load goes first and comes last.
    for (const fs::path& entry : entries_of(path_)) {
      if (makes_weights_load(entry.filename().string())) fs::remove(entry);
    }
    for (const bool last : {false, true}) {
      for (const fs::path& file : files) {
        const std::string name = file.filename().string();
        if (makes_weights_load(name) == last) fs::rename(file, path_ / name);
      }
      if (last) break;
      for (const fs::path& entry : entries_of(path_)) {
        const bool is_new = std::find(files.begin(), files.end(), temporary / entry.filename()) != files.end();
        if (is_model_file(entry.filename().string()) && !is_new) fs::remove(entry);
      }
    }
    fs::remove_all(temporary);
  } catch (const fs::filesystem_error& error) {
    throw_run_failure("{}: {}; what is not in {} yet lies in {}", error.path1().string(), error.code().message(),
                      path_.string(), temporary.string());
  }
  sync_folder(path_);
}

}  // namespace skrull
