#pragma once
// The model of a run: its architecture and its parameters on this rank, from and to model folders.

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>

#include "skrull/config/train_config.h"
#include "skrull/model/model_io.h"
#include "skrull/model/transformer.h"
#include "skrull/parallel/micro_batch_attention.h"
#include "skrull/parallel/trainable_parameters.h"
#include "skrull/train/datasets.h"
#include "skrull/train/rank_session.h"

namespace skrull {

/// Writes a folder's files into the folder given.
using WriteFolder = std::function<void(const std::filesystem::path&)>;

class ModelState {
 public:
  /// Reads config.json and the weights of model_name_or_path, or draws them by seed (init: random). `training`: with
  /// gradients and optimizer state. Not collective. Throws InvalidInput naming file, key or tensor.
  /// `load_weights` false: they come later, by load_weights() or from a checkpoint. `between` is called before each
  /// tensor, as often on every rank; what it throws ends the work.
  ModelState(const TrainConfig& config, RankSession& rank, bool training, bool load_weights = true,
             const std::function<void()>& between = {});
  void load_weights(const TrainConfig& config, const std::function<void()>& between = {});

  const Qwen2Config& config() const { return config_; }
  TrainableParameters& parameters() { return *parameters_; }

  /// Collective: calls `use` on rank 0 with a function that writes the model as a Hugging Face folder: weights in
  /// save_dtype (auto: as in the input), config and tokenizer files. The other ranks help to gather the weights. What
  /// `use` throws, all ranks throw together.
  void export_model(const TrainConfig& config, const EndOfTurn& end_of_turn, ControlChannel& control,
                    const std::function<void(const WriteFolder&)>& use);
  /// The weight files that export_model() writes.
  ModelWeights exported_weights(const TrainConfig& config) const;

 private:
  std::optional<DType> export_dtype(const TrainConfig& config) const;

  Qwen2Config config_;
  ParameterTable table_;
  std::unique_ptr<TrainableParameters> parameters_;
};

/// Tokens of a micro-batch for which this rank still has memory, by the memory model; called when the training state is
/// allocated. May be less than 1.
std::int64_t tokens_that_fit(const TrainConfig& config, const Qwen2Config& model, RankSession& rank);

/// Tokens that a micro-batch may hold on one rank: bucket_tokens, or for "auto" what `tokens_in_memory`, the least of
/// tokens_that_fit() over the ranks, allows: on a GPU all of it, on a CPU up to 4096, and never less than the longest
/// sample over all context-parallel ranks of a replica takes. Never more than a global batch of `global_batch_size`
/// training sequences, or the evaluation data, can fill, so that memory is planned for what can happen.
std::int64_t resolve_bucket_tokens(const TrainConfig& config, const Datasets& data, RankSession& rank,
                                   std::int64_t global_batch_size, std::int64_t tokens_in_memory);

TransformerOptions transformer_options(const TrainConfig& config, std::int64_t max_tokens, bool training);

/// The attention that goes with a Transformer of these options. `rank` must outlive it.
std::unique_ptr<MicroBatchAttention> make_attention(const Qwen2Config& model, const TransformerOptions& options,
                                                    RankSession& rank);

/// The end-of-turn token of the tokenizer, when samples are trained to say it: a chat template was used.
EndOfTurn find_end_of_turn(const Dataset& dataset, const std::filesystem::path& tokenizer_folder);

}  // namespace skrull
