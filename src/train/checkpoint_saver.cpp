#include "skrull/train/checkpoint_saver.h"

#include <utility>

#include "skrull/core/activity.h"
#include "skrull/core/error.h"
#include "skrull/core/log.h"

namespace skrull {
namespace {
namespace fs = std::filesystem;

std::vector<FileRecord> record_all(const fs::path& folder) {
  std::vector<FileRecord> records;
  for (const auto& entry : fs::directory_iterator(folder)) {
    records.push_back(record_file(folder, entry.path().filename().string()));
  }
  return records;
}

}  // namespace

CheckpointSaver::CheckpointSaver(const TrainConfig& config, const RunFolder& folder, ModelState& model,
                                 EndOfTurn end_of_turn, RankSession& rank)
    : config_(config), folder_(folder), model_(model), end_of_turn_(std::move(end_of_turn)), rank_(rank) {}

std::int64_t CheckpointSaver::bytes_to_write(Content content) const {
  const std::int64_t model = model_.exported_bytes(config_);
  if (content == Content::model_alone) return model;
  return model + optimizer_shards_bytes(model_.parameters().table(), model_.stored_as_float32(config_));
}

void CheckpointSaver::save(const TrainerState& state, Content content) {
  ControlChannel& control = rank_.control();
  set_activity(fmt::format("saving checkpoint-{}", state.step));
  std::string problem;
  try {
    const fs::path temporary = control.run_together([&] {
      fs::path folder = folder_.temporary_checkpoint(state.step);
      if (control.rank() == 0) folder_.begin_checkpoint(state.step, bytes_to_write(content));
      return folder;
    });
    write(state, content, temporary);
  } catch (const Error& error) {
    if (!failed_together(error)) throw;
    problem = error.what();
  }
  if (problem.empty()) return;
  if (control.rank() == 0) folder_.discard_checkpoint(state.step);
  control.agree_or_throw(fmt::format("checkpoint-{} was not saved: {}. {}", state.step, problem,
                                     control.rank() == 0 ? folder_.advice_after_failed_save() : ""),
                         static_cast<int>(ExitCode::run_failed));
}

void CheckpointSaver::write(const TrainerState& state, Content content, const fs::path& temporary) {
  ControlChannel& control = rank_.control();
  std::vector<FileRecord> records;
  if (content == Content::everything) {
    // Every rank its own part, at the same time.
    const std::string mine = control.run_together([&] {
      const std::string name = optimizer_shard_name(control.rank(), control.size());
      write_optimizer_shard(temporary / name, model_.stored_as_float32(config_), model_.parameters(), rank_.device());
      return records_to_text({record_file(temporary, name)});
    });
    for (const std::string& text : control.gather(mine)) {
      for (FileRecord& record : records_from_text(text)) records.push_back(std::move(record));
    }
  }
  fs::path model_folder = temporary / "model";
  model_.export_model(config_, end_of_turn_, control, [&](const WriteFolder& write) { write(model_folder); });
  control.run_together([&] {
    if (control.rank() != 0) return;
    for (FileRecord& record : record_all(model_folder)) {
      fs::rename(model_folder / record.name, temporary / record.name);
      records.push_back(std::move(record));
    }
    fs::remove(model_folder);
    write_trainer_state(temporary / trainer_state_file, state);
    records.push_back(record_file(temporary, trainer_state_file));
    write_manifest(temporary, {state.step, content == Content::everything, std::move(records)});
    folder_.complete_checkpoint(state.step, config_.save_total_limit);
  });
}

}  // namespace skrull
