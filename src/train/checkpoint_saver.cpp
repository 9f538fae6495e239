#include "skrull/train/checkpoint_saver.h"

#include <algorithm>
#include <utility>

#include "skrull/core/activity.h"
#include "skrull/core/error.h"
#include "skrull/core/file_pieces.h"
#include "skrull/train/checkpoint_state.h"

namespace skrull {
namespace {
namespace fs = std::filesystem;

bool contains(const std::vector<FileRecord>& records, const std::string& name) {
  return std::any_of(records.begin(), records.end(), [&](const FileRecord& record) { return record.name == name; });
}

/// The files of the folder that have no record yet.
std::vector<FileRecord> record_others(const fs::path& folder, const std::vector<FileRecord>& known) {
  std::vector<FileRecord> records;
  for (const auto& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().filename();
    if (!contains(known, name)) records.push_back(record_file(folder, name));
  }
  return records;
}

}  // namespace

CheckpointSaver::CheckpointSaver(const TrainConfig& config, const RunFolder& folder, ModelState& model,
                                 EndOfTurn end_of_turn, RankSession& rank)
    : config_(config), folder_(folder), model_(model), end_of_turn_(std::move(end_of_turn)), rank_(rank) {}

std::int64_t CheckpointSaver::bytes_to_write(Content content, const ModelWeights& weights) const {
  const std::int64_t model = weights.layout.bytes();
  if (content == Content::model_alone) return model;
  const ParameterTable& table = model_.parameters().table();
  return model + optimizer_shards_bytes(table, stored_as_float32(table, weights));
}

void CheckpointSaver::save(const TrainerState& state, Content content) {
  ControlChannel& control = rank_.control();
  set_activity(fmt::format("saving checkpoint-{}", state.step));
  std::string problem;
  try {
    const ModelWeights weights = control.run_together([&] {
      ModelWeights planned = model_.exported_weights(config_);
      if (control.rank() == 0) begin(state.step, content, planned);
      return planned;
    });
    write(state, content, weights);
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

/// On rank 0: the folder, with the files of which every rank writes a part.
void CheckpointSaver::begin(std::int64_t step, Content content, const ModelWeights& weights) {
  folder_.begin_checkpoint(step, bytes_to_write(content, weights));
  for (const SafetensorsLayout::File& file : weights.layout.files) {
    reserve_file(folder_.temporary_checkpoint(step) / file.name, file.bytes);
  }
}

void CheckpointSaver::write(const TrainerState& state, Content content, const ModelWeights& weights) {
  ControlChannel& control = rank_.control();
  const fs::path temporary = folder_.temporary_checkpoint(state.step);
  const std::string mine = control.run_together([&] {
    TrainableParameters& parameters = model_.parameters();
    std::vector<FileRecord> records;
    if (content == Content::everything) {
      records.push_back(write_optimizer_shard(temporary, control.rank(), control.size(),
                                              stored_as_float32(parameters.table(), weights), parameters,
                                              rank_.device()));
    }
    for (FileRecord& record : write_owned_weights(temporary, control.rank(), weights, parameters, rank_.device())) {
      records.push_back(std::move(record));
    }
    return records_to_text(records);
  });
  const std::vector<std::string> of_ranks = control.gather(mine);
  control.run_together([&] {
    if (control.rank() == 0) complete(state, content, weights, of_ranks);
  });
}

/// On rank 0: everything that is small, and the name.
void CheckpointSaver::complete(const TrainerState& state, Content content, const ModelWeights& weights,
                               const std::vector<std::string>& records_of_ranks) {
  const fs::path temporary = folder_.temporary_checkpoint(state.step);
  std::vector<FileRecord> parts;
  for (const std::string& text : records_of_ranks) {
    for (FileRecord& record : records_from_text(text)) parts.push_back(std::move(record));
  }
  std::vector<FileRecord> records = join_records(parts);
  write_safetensors_index(temporary, weights.layout);
  write_model_description(temporary, config_.model_name_or_path, weights, end_of_turn_, tokenizer_folder(config_));
  write_trainer_state(temporary / trainer_state_file, state);
  for (FileRecord& record : record_others(temporary, records)) records.push_back(std::move(record));
  write_manifest(temporary, {state.step, content == Content::everything, std::move(records)});
  folder_.complete_checkpoint(state.step, config_.save_total_limit);
}

}  // namespace skrull
