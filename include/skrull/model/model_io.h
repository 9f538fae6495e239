#pragma once
// Parameters from and to a Hugging Face model folder, and random ones.

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "skrull/core/tensor.h"
#include "skrull/model/parameter_table.h"
#include "skrull/model/safetensors.h"

namespace skrull {

/// The fp32 master values of one block, flat 1 x n host memory laid out by the table. The view must stay valid until
/// the function is called for another block.
using BlockOnHost = std::function<TensorView(int block)>;

/// Fills every block from <folder>'s safetensors, converting F32/BF16/F16 to fp32. Throws InvalidInput naming the
/// tensor and file for a missing tensor, one too many, a wrong shape or dtype; a tied lm_head.weight that is present
/// must equal the embedding. Buffers of rotary embeddings that old files hold are ignored.
void load_parameters(const std::filesystem::path& folder, const ParameterTable& table, const BlockOnHost& block);

/// normal(0, initializer_range) for matrices, ones for norms, zeros for biases, by counter from (seed, tensor name,
/// element): the same for any sharding.
void initialize_parameters(std::uint64_t seed, double initializer_range, const ParameterTable& table,
                           const BlockOnHost& block);

/// The token that ends a turn of the chat template a model was trained with.
struct EndOfTurn {
  std::int64_t token_id = -1;  ///< negative: no chat template was used
  std::string token;           ///< "<|im_end|>"
};

/// A parameter, and in which element type a model folder stores it.
struct StoredParameter {
  const ParameterSpec* parameter = nullptr;
  DType dtype = DType::float32;
};

/// The weight files of a model folder: the parameters in their order there, and where they lie.
struct ModelWeights {
  std::vector<StoredParameter> order;
  SafetensorsLayout layout;  ///< places are those of `order`
};

/// As save_model_folder() writes them. `table` must outlive the result.
ModelWeights plan_model_weights(const ParameterTable& table, const std::filesystem::path& source_folder,
                                std::optional<DType> dtype, std::int64_t shard_bytes = default_shard_bytes);

/// Elements of a parameter from `first` on, as its file holds them, to `target`. Throws RunFailure naming an element
/// that is no finite number of that type: such a model is of no use to anybody and would replace one that is.
void convert_for_storage(const StoredParameter& stored, std::int64_t first, std::span<const float> values,
                         std::span<char> target);

/// What a model folder holds beside its weights and their index: config.json, generation_config.json and tokenizer
/// files, as save_model_folder() writes them.
void write_model_description(const std::filesystem::path& folder, const std::filesystem::path& source_folder,
                             const ModelWeights& weights, const EndOfTurn& end_of_turn,
                             const std::filesystem::path& tokenizer_folder);

/// Writes a Hugging Face folder at `folder` (made if missing): weights in `dtype` (nothing: each tensor's as in
/// `source_folder`, which must hold weights), shards of `shard_bytes`, names, shapes and order as Hugging Face's own
/// (the source's order when it holds weights; a tied head is omitted), config.json copied from `source_folder` with its
/// dtype set, generation_config.json copied or made from config.json's token ids, tokenizer files copied byte for byte
/// when there, from `tokenizer_folder` (empty: `source_folder`). With `end_of_turn` a model keeps stopping there when
/// served: the token leads the eos ids of generation_config.json, is the eos id of config.json and the eos token of
/// tokenizer_config.json and special_tokens_map.json, unless it is among them already (a file that is right stays as it
/// was). Throws RunFailure when writing fails, InvalidInput for a broken file of the source.
void save_model_folder(const std::filesystem::path& folder, const std::filesystem::path& source_folder,
                       const ParameterTable& table, const BlockOnHost& block, std::optional<DType> dtype,
                       const EndOfTurn& end_of_turn = {}, const std::filesystem::path& tokenizer_folder = {},
                       std::int64_t shard_bytes = default_shard_bytes);

/// Whether save_model_folder() may write a file of this name.
bool is_model_file(std::string_view name);

/// Token ids that end a generation: generation_config.json's, else config.json's, else none.
std::vector<std::int64_t> load_eos_token_ids(const std::filesystem::path& folder);

}  // namespace skrull
