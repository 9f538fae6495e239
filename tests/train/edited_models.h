#pragma once
// Small models whose output is known beforehand, or that fail on purpose.

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>

#include "training_fixture.h"

namespace skrull::test {

/// The untied model that is edited: 131 tokens, hidden size 48, 2 layers.
inline constexpr const char* editable_model = "untied_gqa4_d16";
inline constexpr std::int32_t editable_vocab = 131;
inline constexpr std::int64_t editable_hidden = 48;

inline void set_row(TensorValues& matrix, std::int64_t row, float value) {
  const std::int64_t cols = matrix.shape.at(1);
  std::fill_n(matrix.values.begin() + static_cast<std::ptrdiff_t>(row * cols), cols, value);
}

inline void set_column(TensorValues& matrix, std::int64_t column, float value) {
  const std::int64_t cols = matrix.shape.at(1);
  for (std::int64_t row = 0; row < matrix.shape.at(0); ++row) {
    matrix.values.at(static_cast<std::size_t>(row * cols + column)) = value;
  }
}

inline float& element(TensorValues& matrix, std::int64_t row, std::int64_t column) {
  return matrix.values.at(static_cast<std::size_t>(row * matrix.shape.at(1) + column));
}

/// Writes a model at `folder` in which each context token c of `losses` (below the hidden size) predicts `target` with
/// cross-entropy losses[c], whatever comes before it: embeddings are unit vectors, the layers add nothing, and the head
/// gives the target the logit t with log(V - 1 + e^t) - t = loss, all others 0.
inline void write_model_of_known_losses(const std::filesystem::path& folder, std::int32_t target,
                                        const std::map<std::int32_t, double>& losses) {
  write_edited_model(folder, tiny_model(editable_model), [&](ModelTensors& tensors) {
    for (auto& [name, tensor] : tensors) {
      const bool adds = contains(name, "o_proj.weight") || contains(name, "down_proj.weight");
      if (adds || contains(name, "embed_tokens") || contains(name, "lm_head")) {
        std::fill(tensor.values.begin(), tensor.values.end(), 0.0F);
      }
    }
    TensorValues& norm = tensors.at("model.norm.weight");
    std::fill(norm.values.begin(), norm.values.end(), 1.0F);
    TensorValues& embedding = tensors.at("model.embed_tokens.weight");
    for (std::int32_t token = 0; token < editable_vocab; ++token)
      element(embedding, token, token % editable_hidden) = 1;
    const auto others = static_cast<double>(editable_vocab - 1);
    const double normalized = 1.0 / std::sqrt(1.0 / static_cast<double>(editable_hidden) + 1e-5);
    for (const auto& [context, loss] : losses) {
      const double logit = std::log(others / std::expm1(loss));
      element(tensors.at("lm_head.weight"), target, context) = static_cast<float>(logit / normalized);
    }
  });
}

}  // namespace skrull::test
