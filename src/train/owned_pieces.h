#pragma once
// What a rank owns of each parameter, and what the states of a checkpoint are called.

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "skrull/comm/even_split.h"
#include "skrull/model/parameter_table.h"
#include "skrull/train/checkpoint_state.h"

namespace skrull {

/// Consecutive elements of one parameter that a rank owns.
struct OwnedPiece {
  const ParameterSpec* parameter = nullptr;
  std::size_t index = 0;           ///< of the parameter in the table
  std::int64_t first = 0;          ///< element of the parameter
  std::int64_t first_of_part = 0;  ///< the same, counted from the start of the rank's part of the block
  std::int64_t count = 0;
};

/// Of a block, in the order of the table. `table` must outlive the result.
std::vector<OwnedPiece> owned_pieces(const ParameterTable& table, int block, const Part& part);

/// A state of the optimizer, how it is called, and where a rank holds its part of it.
struct StoredState {
  OptimizerShards::State state;
  const char* name;
  TensorView OwnedState::*view;
};
inline constexpr std::array<StoredState, 3> stored_states = {{
    {OptimizerShards::State::master, "master", &OwnedState::parameter},
    {OptimizerShards::State::first_moment, "first_moment", &OwnedState::first_moment},
    {OptimizerShards::State::second_moment, "second_moment", &OwnedState::second_moment},
}};

/// "model.norm.weight/first_moment"
std::string state_key(const ParameterSpec& parameter, OptimizerShards::State state);

}  // namespace skrull
