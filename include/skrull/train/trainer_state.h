#pragma once
// trainer_state.json: where a run stands, beside its parameters and moments. Everything random is drawn by counter from
// (seed, epoch, step), so the step is the state of every random number generator.

#include <cstdint>
#include <filesystem>
#include <string>

#include "skrull/model/qwen2_config.h"

namespace skrull {

struct TrainerState {
  std::int64_t step = 0;             ///< optimizer steps done, skipped ones included
  std::int64_t updates = 0;          ///< of the parameters: the step of Adam's bias correction
  std::int64_t total_steps = 0;      ///< of the run
  std::int64_t steps_per_epoch = 1;  ///< of global_batch_size sequences
  std::int64_t global_batch_size = 0;
  std::int64_t skipped_steps = 0;
  std::int64_t skipped_in_a_row = 0;
  std::int64_t tokens = 0;      ///< of all steps so far
  double loss = 0;              ///< of the last updated step; NaN when there is none
  double eval_loss = 0;         ///< of the last evaluation; NaN when there is none
  bool evaluation_due = false;  ///< the evaluation after `step` is still to be done
  bool finished = false;        ///< the trained model is saved
  int ranks = 1;                ///< that wrote it
  int context_parallel = 1;
  std::string data_fingerprint;  ///< of the training samples in their order
  Qwen2Config model;
  std::string config;  ///< resolved, as JSON (config_to_json)
};

inline constexpr const char* trainer_state_file = "trainer_state.json";

/// Throws RunFailure when the file can't be written.
void write_trainer_state(const std::filesystem::path& file, const TrainerState& state);

/// Throws InvalidInput naming the file and what is missing or wrong in it.
TrainerState read_trainer_state(const std::filesystem::path& file);

/// Throws InvalidInput naming the first size, of those that must be equal for one's parameters to be the other's, in
/// which the models differ. `origin` is where `saved` comes from.
void check_same_model(const Qwen2Config& saved, const Qwen2Config& model, const std::string& origin);

}  // namespace skrull
