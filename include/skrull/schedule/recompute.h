#pragma once
// Which activations of a layer the backward pass computes again instead of reading them.

namespace skrull {

/// `none` keeps every result of the forward. `selective` computes again what one pass over memory gives: normed inputs
/// and the MLP's inner product. `full` keeps a layer's input alone and runs its forward twice.
enum class Recompute { none, selective, full };

}  // namespace skrull
