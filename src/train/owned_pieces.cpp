#include "owned_pieces.h"

#include <algorithm>

namespace skrull {

std::vector<OwnedPiece> owned_pieces(const ParameterTable& table, int block, const Part& part) {
  std::vector<OwnedPiece> pieces;
  for (std::size_t i = 0; i < table.parameters().size(); ++i) {
    const ParameterSpec& parameter = table.parameters()[i];
    const std::int64_t begin = std::max(parameter.offset, part.begin);
    const std::int64_t end = std::min(parameter.offset + parameter.elements(), part.end());
    if (parameter.block != block || begin >= end) continue;
    pieces.push_back({&parameter, i, begin - parameter.offset, begin - part.begin, end - begin});
  }
  return pieces;
}

std::string state_key(const ParameterSpec& parameter, OptimizerShards::State state) {
  const auto* stored = std::find_if(stored_states.begin(), stored_states.end(),
                                    [state](const StoredState& known) { return known.state == state; });
  return fmt::format("{}/{}", parameter.name, stored->name);
}

}  // namespace skrull
