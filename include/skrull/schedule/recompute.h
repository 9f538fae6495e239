#pragma once
// Which activations of a layer the backward pass computes again instead of reading them.

#include <string_view>

namespace skrull {

/// `none` keeps every result of the forward. `selective` computes again what one pass over memory gives: normed inputs
/// and the MLP's inner product. `full` keeps a layer's input alone and runs its forward twice.
enum class Recompute { none, selective, full };

/// As the option gradient_checkpointing spells it.
constexpr std::string_view name_of(Recompute recompute) {
  if (recompute == Recompute::none) return "none";
  return recompute == Recompute::selective ? "selective" : "full";
}

}  // namespace skrull
