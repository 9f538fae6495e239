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
constexpr const char* cache_name = "cache";

/// Step of a complete checkpoint folder's name, or nothing.
std::optional<std::int64_t> checkpoint_step(const std::string& name) {
  if (!name.starts_with(checkpoint_prefix)) return std::nullopt;
  std::int64_t step = 0;
  const char* end = name.data() + name.size();
  const auto [stop, problem] = std::from_chars(name.data() + checkpoint_prefix.size(), end, step);
  return problem == std::errc{} && stop == end ? std::optional(step) : std::nullopt;
}

/// A file or folder that a run writes into its output_dir.
bool is_made_by_a_run(const fs::path& entry) {
  const std::string name = entry.filename().string();
  return name == "args.json" || name == "metrics.jsonl" || name == "run.log" || name.starts_with(checkpoint_prefix) ||
         name.starts_with(".saving-") || is_model_file(name);
}

/// Throws when the run reads `source`, a model or tokenizer folder, from where it writes.
void check_source(const fs::path& output, const fs::path& source, const char* what) {
  std::error_code problem;
  if (fs::equivalent(output, source, problem)) {
    throw_invalid_input("output_dir: {} is the {} folder itself, which training would overwrite; choose another folder",
                        output.string(), what);
  }
  const fs::path inside = fs::canonical(source, problem).lexically_relative(fs::canonical(output, problem));
  if (!problem && !inside.empty() && is_made_by_a_run(*inside.begin())) {
    throw_invalid_input(
        "output_dir: the {} folder {} is part of an earlier run there, which this run would remove; choose another "
        "output_dir",
        what, source.string());
  }
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
  check_source(path_, config.model_name_or_path, "model");
  check_source(path_, tokenizer_folder(config), "tokenizer");
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
  std::vector<fs::path> earlier;
  for (const auto& entry : fs::directory_iterator(path_)) {
    if (is_made_by_a_run(entry.path())) earlier.push_back(entry.path());
  }
  for (const fs::path& entry : earlier) fs::remove_all(entry);
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
  const fs::path temporary = path_ / fmt::format(".saving-{}{}", checkpoint_prefix, step);
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
  const fs::path temporary = path_ / ".saving-model";
  write_temporary_folder(temporary, write);
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(temporary)) files.push_back(entry.path());
  for (const fs::path& file : files) {
    std::error_code problem;
    fs::rename(file, path_ / file.filename(), problem);
    if (problem) throw_run_failure("{}: can't be completed: {}", (path_ / file.filename()).string(), problem.message());
  }
  std::error_code ignored;
  fs::remove_all(temporary, ignored);
  sync_folder(path_);
}

}  // namespace skrull
