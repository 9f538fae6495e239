#include "skrull/train/resume.h"

#include <algorithm>
#include <array>

#include "skrull/config/config_changes.h"
#include "skrull/core/checksum.h"
#include "skrull/core/error.h"
#include "skrull/core/json.h"
#include "skrull/core/log.h"

namespace skrull {
namespace {
namespace fs = std::filesystem;

/// The options that resolve_global_batch_size() reads.
constexpr std::array batch_options{"global_batch_size", "per_device_train_batch_size", "gradient_accumulation_steps"};
/// Options that say where things are, or how to start: no news when they change.
constexpr std::array places{"output_dir", "overwrite_output_dir", "resume_from_checkpoint"};

template <std::size_t n>
bool is_one_of(const std::array<const char*, n>& names, const ConfigChange& change) {
  return std::find(names.begin(), names.end(), change.name) != names.end();
}

std::vector<ConfigChange> changes_at(const TrainerState& saved, const std::string& origin, const TrainConfig& config) {
  return changes_since(saved.config, origin + ": the config in it", config);
}

bool continues_in_place(const TrainConfig& config, const RunFolder& folder) {
  std::error_code unknown;
  return config.resume_from_checkpoint == resume_automatically ||
         fs::equivalent(config.resume_from_checkpoint, folder.path(), unknown);
}

/// Checkpoints to look at, the newest first.
std::vector<std::string> find_candidates(const TrainConfig& config, const RunFolder& folder) {
  const fs::path& wanted = config.resume_from_checkpoint;
  const bool automatic = wanted == resume_automatically;
  if (!automatic && fs::exists(wanted / manifest_file)) return {wanted.string()};
  const RunFolder run = automatic ? folder : RunFolder(wanted);
  std::vector<std::string> found;
  for (const std::int64_t step : run.checkpoints()) found.push_back(run.checkpoint_folder(step).string());
  std::reverse(found.begin(), found.end());
  if (found.empty() && !automatic) {
    throw_invalid_input(
        "resume_from_checkpoint: {} is no complete checkpoint (no {} in it) and holds none; give a folder "
        "checkpoint-<step>, an output_dir that has one, or \"auto\"",
        wanted.string(), manifest_file);
  }
  return found;
}

/// As rank 0 sees them, on every rank.
std::vector<std::string> candidates(const TrainConfig& config, const RunFolder& folder, ControlChannel& control) {
  const std::string of_rank_0 = control.run_together(
      [&] { return control.rank() == 0 ? OrderedJson(find_candidates(config, folder)).dump() : std::string(); });
  return OrderedJson::parse(control.broadcast(of_rank_0)).get<std::vector<std::string>>();
}

std::optional<TrainerState> finished_run(const TrainConfig& config, const RunFolder& folder, ControlChannel& control) {
  const fs::path file = folder.path() / trainer_state_file;
  const bool found = control.rank() == 0 && continues_in_place(config, folder) && fs::exists(file);
  if (control.max(std::int64_t{found}) == 0) return std::nullopt;
  TrainerState state = control.run_together([&] { return read_trainer_state(file); });
  return state.finished ? std::optional(std::move(state)) : std::nullopt;
}

bool lies_in(const fs::path& folder, const fs::path& parent) {
  std::error_code unknown;
  return fs::equivalent(fs::absolute(folder).lexically_normal().parent_path(), parent, unknown);
}

}  // namespace

CheckedCheckpoint check_checkpoint(const fs::path& folder, ControlChannel& control, StopRequest& stop) {
  CheckedCheckpoint result;
  try {
    result.manifest = read_manifest(folder);
  } catch (const InvalidInput& error) {
    result.problem = error.what();
  }
  for (std::size_t i = 0; i < result.manifest.files.size() && result.problem.empty(); ++i) {
    const bool is_mine = static_cast<int>(i % static_cast<std::size_t>(control.size())) == control.rank();
    if (!is_mine) continue;
    try {
      result.problem = damage_of(folder, result.manifest.files[i], [&] {
        if (stop.wanted_here()) throw Stopped("asked to stop");
      });
    } catch (const Stopped&) {
      break;
    }
  }
  stop.throw_if_asked();
  const std::vector<std::string> problems = control.gather(result.problem);
  const auto first = std::find_if(problems.begin(), problems.end(), [](const auto& text) { return !text.empty(); });
  result.problem = first == problems.end() ? "" : *first;
  return result;
}

Resume find_resume(const TrainConfig& config, const RunFolder& folder, ControlChannel& control, StopRequest& stop) {
  Resume resume;
  if (config.resume_from_checkpoint.empty()) return resume;
  resume.finished = finished_run(config, folder, control);
  std::string reasons;
  bool model_alone = false;
  for (const std::string& candidate : candidates(config, folder, control)) {
    CheckedCheckpoint checked = check_checkpoint(candidate, control, stop);
    if (checked.problem.empty() && checked.manifest.resumable) {
      TrainerState state =
          control.run_together([&] { return read_trainer_state(fs::path(candidate) / trainer_state_file); });
      resume.point = ResumePoint{candidate, std::move(state), lies_in(candidate, folder.path())};
      return resume;
    }
    if (checked.problem.empty()) {
      model_alone = true;
      checked.problem = candidate + ": it holds the model alone (save_only_model); training can't continue from it";
    }
    log::warning("{}", checked.problem);
    if (reasons.empty()) reasons = checked.problem;
  }
  const bool must_continue = config.resume_from_checkpoint != resume_automatically || model_alone;
  if (must_continue && !resume.finished) {
    control.agree_or_throw(
        fmt::format("resume_from_checkpoint: there is no checkpoint to continue from: {}. Give another one, or start "
                    "anew without resume_from_checkpoint (in another output_dir, or with overwrite_output_dir)",
                    reasons),
        static_cast<int>(ExitCode::invalid_input));
  }
  return resume;
}

std::string fingerprint_of(const Dataset& dataset) {
  Checksum checksum;
  checksum.add_field(dataset.store->checksum());
  checksum.add(dataset.samples.data(), dataset.samples.size() * sizeof(dataset.samples.front()));
  return checksum.hex();
}

std::int64_t resumed_global_batch_size(const TrainerState& saved, const TrainConfig& config,
                                       std::int64_t data_parallel) {
  for (const ConfigChange& change : changes_at(saved, "the checkpoint", config)) {
    if (is_one_of(batch_options, change)) return resolve_global_batch_size(config, data_parallel);
  }
  return saved.global_batch_size;
}

void check_resumable(const TrainerState& saved, const std::string& origin, const TrainConfig& config,
                     std::int64_t global_batch_size, const Dataset& train, const Qwen2Config& model) {
  constexpr const char* advice = "take that back, or start anew in another output_dir";
  for (const ConfigChange& change : changes_at(saved, origin, config)) {
    if (change.allowed_on_resume) continue;
    throw_invalid_input(
        "{}: it was saved with {} {}, now it is {}, which would change the order of the data or the "
        "loss; {}",
        origin, change.name, change.before, change.now, advice);
  }
  if (saved.global_batch_size != global_batch_size) {
    throw_invalid_input(
        "{}: it was saved with {} sequences per step, now there would be {} (global_batch_size, "
        "per_device_train_batch_size, gradient_accumulation_steps); give global_batch_size {}, or start anew in "
        "another output_dir",
        origin, saved.global_batch_size, global_batch_size, saved.global_batch_size);
  }
  check_same_model(saved.model, model, origin);
  if (saved.data_fingerprint == fingerprint_of(train)) return;
  throw_invalid_input(
      "{}: it was saved while training on other data: the rows of dataset, or what the tokenizer makes of them, have "
      "changed since (data_fingerprint {}, now {}); give the same data, or start anew in another output_dir",
      origin, saved.data_fingerprint, fingerprint_of(train));
}

std::vector<std::string> describe_changes(const TrainerState& saved, const TrainConfig& config) {
  std::vector<std::string> lines;
  for (const ConfigChange& change : changes_at(saved, "the checkpoint", config)) {
    if (is_one_of(places, change)) continue;
    lines.push_back(fmt::format("{}: {} until the checkpoint, {} from now on", change.name, change.before, change.now));
  }
  return lines;
}

}  // namespace skrull
