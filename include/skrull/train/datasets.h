#pragma once
// The training and evaluation data of a run, the same on every rank.

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "skrull/comm/communicator.h"
#include "skrull/config/train_config.h"
#include "skrull/data/token_store.h"
#include "skrull/train/stop_request.h"

namespace skrull {

/// Some samples of a store. The store is shared when evaluation rows were split off the training data.
struct Dataset {
  std::shared_ptr<const TokenStore> store;
  std::vector<std::int64_t> samples;  ///< indices into the store, ascending

  bool empty() const { return samples.empty(); }
  std::int64_t size() const { return static_cast<std::int64_t>(samples.size()); }
};

struct Datasets {
  Dataset train;
  Dataset eval;  ///< empty when neither eval_dataset nor val_size was given
};

/// How text becomes ids for this config: the tokenizer of tokenizer_folder() with its chat template; null when that
/// folder has no tokenizer (rows of input_ids still work).
std::unique_ptr<TextEncoder> load_text_encoder(const TrainConfig& config);

/// Tokenizes `files` on rank 0 into the cache (or finds them there) and maps the result on every rank. Collective; bad
/// rows end all ranks together, and so does `stop` (with Stopped), where it is given.
std::shared_ptr<const TokenStore> open_token_store(const std::vector<std::filesystem::path>& files,
                                                   const TrainConfig& config, const TextEncoder* encoder,
                                                   std::int64_t vocab_size, const std::filesystem::path& cache_folder,
                                                   ControlChannel& control, StopRequest* stop = nullptr);

/// The config's dataset, and eval_dataset or the val_size rows split off. Collective.
Datasets load_datasets(const TrainConfig& config, const TextEncoder* encoder, std::int64_t vocab_size,
                       const std::filesystem::path& cache_folder, ControlChannel& control, StopRequest* stop = nullptr);

/// For `skrull eval`: eval_dataset, else the val_size rows split off dataset, else all of dataset. Collective. Throws
/// InvalidInput on all ranks when the config has neither.
Dataset load_evaluation_data(const TrainConfig& config, const TextEncoder* encoder, std::int64_t vocab_size,
                             const std::filesystem::path& cache_folder, ControlChannel& control);

// Lines for people. `title` says which data it is.

/// Rows kept, dropped and truncated, and ignored columns (as warnings), of the whole store.
void report_rows(const std::string& title, const TokenStore& store, const TrainConfig& config);

/// Number and lengths of the samples; a warning when one is longer than the model's positions.
void report_lengths(const std::string& title, const Dataset& dataset, std::int64_t max_position_embeddings);

/// One decoded sample with its supervised part marked.
void report_first_sample(const std::string& title, const Dataset& dataset, const TextEncoder* encoder);

}  // namespace skrull
