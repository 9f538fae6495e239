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
#include "skrull/core/json.h"
#include "skrull/core/log.h"
#include "skrull/core/text.h"
#include "skrull/model/model_io.h"
#include "skrull/train/stop_request.h"
#include "skrull/train/trainer_state.h"

namespace skrull {
namespace fs = std::filesystem;
namespace {

constexpr std::string_view checkpoint_prefix = "checkpoint-";
constexpr std::string_view temporary_prefix = ".saving-";
constexpr std::string_view set_aside_suffix = ".set-aside";
constexpr const char* cache_name = "cache";
constexpr const char* args_name = "args.json";

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
  constexpr std::string_view partial = ".partial";  // of AtomicFileWriter
  if (name.ends_with(partial)) return is_record_of_a_run(name.substr(0, name.size() - partial.size()));
  const bool is_set_aside = name.starts_with(checkpoint_prefix) && name.ends_with(set_aside_suffix);
  return name == args_name || name == metrics_name || name == log_name || name == trace_name ||
         name == trainer_state_file || checkpoint_step(name).has_value() || is_set_aside ||
         name.starts_with(temporary_prefix);
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

/// Whether the checkpoint that the config names lies in `folder`, or is one of those there.
bool holds_resume_point(const fs::path& folder, const TrainConfig& config) {
  const fs::path& wanted = config.resume_from_checkpoint;
  if (wanted.empty() || wanted == resume_automatically) return false;
  std::error_code unknown;
  return fs::equivalent(folder, wanted, unknown) ||
         fs::equivalent(folder, fs::absolute(wanted).lexically_normal().parent_path(), unknown);
}

/// A folder that is half removed must not look like a checkpoint: it loses its name first. What can't be removed is no
/// reason to end a run.
void remove_in_one_step(const fs::path& checkpoint) {
  const fs::path doomed = checkpoint.parent_path() / (std::string(temporary_prefix) + "removed");
  std::error_code problem;
  fs::remove_all(doomed, problem);
  fs::rename(checkpoint, doomed, problem);
  if (!problem) fs::remove_all(doomed, problem);
  if (problem) log::warning("{}: can't be removed: {}", checkpoint.string(), problem.message());
}

/// Keeps the rows of steps up to `step`. What follows a row that was not written to its end goes too.
void cut_metrics_after(std::int64_t step, const fs::path& file) {
  if (!fs::exists(file)) return;
  const std::string text = read_file(file);
  std::size_t kept = 0;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = text.find('\n', begin);
    if (end == std::string::npos) break;
    const OrderedJson row = OrderedJson::parse(text.substr(begin, end - begin), nullptr, false);
    if (!row.is_object() || row.value("step", step + 1) > step) break;
    kept = begin = end + 1;
  }
  if (kept < text.size()) write_file_atomically(file, std::string_view(text).substr(0, kept));
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
  const bool automatic = config.resume_from_checkpoint == resume_automatically;
  const bool is_run_to_continue = automatic && fs::exists(path_ / args_name);
  if (config.overwrite_output_dir || is_run_to_continue || holds_resume_point(path_, config)) return;
  for (const auto& entry : fs::directory_iterator(path_)) {
    const std::string name = entry.path().filename();
    if (name == cache_name || name == stop_file_name || (automatic && is_record_of_a_run(name))) continue;
    throw_invalid_input(
        "output_dir: {} is not empty (it holds {}); nothing was overwritten. Choose another output_dir, or set "
        "resume_from_checkpoint to auto to continue an earlier run, or overwrite_output_dir to replace it",
        path_.string(), name);
  }
}

void RunFolder::begin(const TrainConfig& config) const {
  if (!config.resume_from_checkpoint.empty()) set_aside_checkpoints_after(-1);
  for (const fs::path& entry : entries_of(path_)) {
    const std::string name = entry.filename();
    const bool is_kept = !config.resume_from_checkpoint.empty() && name.ends_with(set_aside_suffix);
    if (is_record_of_a_run(name) && !is_kept) fs::remove_all(entry);
  }
  write_file_atomically(path_ / args_name, config_to_json(config));
}

void RunFolder::continue_after(std::int64_t step, const TrainConfig& config) const {
  for (const fs::path& entry : entries_of(path_)) {
    if (entry.filename().string().starts_with(temporary_prefix)) fs::remove_all(entry);
  }
  set_aside_checkpoints_after(step);
  fs::remove(path_ / trainer_state_file);
  cut_metrics_after(step, metrics_file());
  write_file_atomically(path_ / args_name, config_to_json(config));
}

void RunFolder::set_aside_checkpoints_after(std::int64_t step) const {
  for (const std::int64_t later : checkpoints()) {
    if (later <= step) continue;
    const fs::path folder = checkpoint_folder(later);
    fs::path aside = folder;
    aside += set_aside_suffix;
    fs::remove_all(aside);
    fs::rename(folder, aside);
    log::warning("{}: set aside as {}, the run goes on from before it", folder.string(), aside.filename().string());
  }
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

std::vector<std::int64_t> RunFolder::checkpoints() const {
  std::vector<std::int64_t> steps;
  std::error_code absent;
  for (const auto& entry : fs::directory_iterator(path_, absent)) {
    if (const auto step = checkpoint_step(entry.path().filename().string())) steps.push_back(*step);
  }
  std::sort(steps.begin(), steps.end());
  return steps;
}

fs::path RunFolder::temporary_checkpoint(std::int64_t step) const {
  return path_ / fmt::format("{}{}{}", temporary_prefix, checkpoint_prefix, step);
}

void RunFolder::begin_checkpoint(std::int64_t step, std::int64_t bytes) const {
  const fs::path temporary = temporary_checkpoint(step);
  std::error_code problem;
  fs::remove_all(temporary, problem);
  fs::create_directories(temporary, problem);
  if (problem) throw_run_failure("{}: can't be made: {}", temporary.string(), problem.message());
  const fs::space_info space = fs::space(temporary, problem);
  if (problem || space.available >= static_cast<std::uintmax_t>(bytes)) return;
  throw_run_failure("{}: the disk is too full: {} needed, {} free", temporary.string(), format_bytes(bytes),
                    format_bytes(static_cast<std::int64_t>(space.available)));
}

void RunFolder::complete_checkpoint(std::int64_t step, std::int64_t total_limit) const {
  const fs::path temporary = temporary_checkpoint(step);
  const fs::path final_folder = checkpoint_folder(step);
  std::error_code problem;
  sync_folder(temporary);
  if (fs::exists(final_folder)) {  // one that was passed over as damaged, say
    fs::path old = temporary;
    old += ".old";
    fs::remove_all(old, problem);
    fs::rename(final_folder, old, problem);
  }
  fs::rename(temporary, final_folder, problem);
  if (problem) throw_run_failure("{}: can't be completed: {}", final_folder.string(), problem.message());
  sync_folder(path_);
  const std::vector<std::int64_t> steps = checkpoints();
  for (std::size_t i = 0; total_limit > 0 && i + static_cast<std::size_t>(total_limit) < steps.size(); ++i) {
    if (steps[i] == step) continue;
    remove_in_one_step(checkpoint_folder(steps[i]));
  }
}

void RunFolder::discard_checkpoint(std::int64_t step) const {
  std::error_code ignored;
  fs::remove_all(temporary_checkpoint(step), ignored);
}

std::string RunFolder::advice_after_failed_save() const {
  const std::vector<std::int64_t> steps = checkpoints();
  if (steps.empty()) {
    return fmt::format("There is no earlier checkpoint in {}; mend the cause and start again", path_.string());
  }
  return fmt::format(
      "{} is complete and unchanged: mend the cause and continue from it with "
      "resume_from_checkpoint=auto",
      checkpoint_folder(steps.back()).string());
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
