#pragma once
// Parameters from and to a Hugging Face model folder, and random ones.

#include <cstdint>
#include <filesystem>
#include <functional>

#include "skrull/core/tensor.h"
#include "skrull/model/parameter_table.h"

namespace skrull {

/// The fp32 master values of one block, flat 1 x n host memory laid out by the table.
using BlockOnHost = std::function<TensorView(int block)>;

/// Fills every block from <folder>'s safetensors, converting F32/BF16/F16 to fp32. Throws InvalidInput naming the
/// tensor and file for a missing tensor, one too many, a wrong shape or dtype; a tied lm_head.weight that is present
/// must equal the embedding. Returns the dtype the folder stores.
DType load_parameters(const std::filesystem::path& folder, const ParameterTable& table, const BlockOnHost& block);

/// normal(0, initializer_range) for matrices, ones for norms, zeros for biases, by counter from (seed, tensor name,
/// element): the same for any sharding.
void initialize_parameters(std::uint64_t seed, double initializer_range, const ParameterTable& table,
                           const BlockOnHost& block);

/// Writes a Hugging Face folder at `folder` (made if missing): weights in `dtype`, 5 GB shards, names and shapes as
/// Hugging Face's own (a tied head is omitted), config.json copied from `source_folder` with torch_dtype set,
/// generation_config.json and tokenizer files copied when there; with a chat template the eos token of
/// generation_config.json and config.json includes <|im_end|> when `chat_eos_token_id` >= 0. Throws RunFailure when
/// writing fails.
void save_model_folder(const std::filesystem::path& folder, const std::filesystem::path& source_folder,
                       const ParameterTable& table, const BlockOnHost& block, DType dtype,
                       std::int64_t chat_eos_token_id = -1);

}  // namespace skrull
