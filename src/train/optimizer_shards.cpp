// The optimizer's part of a checkpoint: pieces of parameters, by name and element.

#include <algorithm>
#include <charconv>
#include <cstring>
#include <map>
#include <unordered_map>

#include "skrull/core/error.h"
#include "skrull/model/safetensors.h"
#include "skrull/train/checkpoint.h"

namespace skrull {
namespace {
namespace fs = std::filesystem;

using State = OptimizerShards::State;

constexpr std::string_view shard_prefix = "optimizer-";
constexpr std::string_view shard_suffix = ".safetensors";

/// The states, how they are called, and where a rank holds its part of them.
struct StoredState {
  State state;
  const char* name;
  TensorView OwnedState::*view;
};
constexpr StoredState stored_states[] = {
    {State::master, "master", &OwnedState::parameter},
    {State::first_moment, "first_moment", &OwnedState::first_moment},
    {State::second_moment, "second_moment", &OwnedState::second_moment},
};

/// "model.norm.weight/first_moment"
std::string state_key(const ParameterSpec& parameter, State state) {
  const auto* stored = std::find_if(std::begin(stored_states), std::end(stored_states),
                                    [state](const StoredState& known) { return known.state == state; });
  return parameter.name + "/" + stored->name;
}

/// Elements of a parameter that the model's own file holds in float32.
void read_from_model(const SafetensorsReader& model, const ParameterSpec& parameter, std::int64_t first,
                     std::span<float> target) {
  const StoredTensor* tensor = model.find(parameter.name);
  const bool usable = tensor != nullptr && tensor->dtype == DType::float32 &&
                      tensor->bytes.size() == static_cast<std::size_t>(parameter.elements()) * sizeof(float);
  if (!usable) throw_invalid_input("the checkpoint holds {} neither as master nor in float32", parameter.name);
  std::memcpy(target.data(), tensor->bytes.data() + static_cast<std::size_t>(first) * sizeof(float),
              target.size_bytes());
}

/// Consecutive elements of one parameter that a rank owns.
struct OwnedPiece {
  const ParameterSpec* parameter;
  std::size_t index;           ///< of the parameter in the table
  std::int64_t first;          ///< element of the parameter
  std::int64_t first_of_part;  ///< the same, counted from the start of the rank's part of the block
  std::int64_t count;
};

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

TensorToWrite tensor_of(const OwnedPiece& piece, State state, const TensorView& values, Device& device) {
  return {fmt::format("{}/{}", state_key(*piece.parameter, state), piece.first),
          DType::float32,
          {piece.count},
          [&device, values](std::int64_t first, std::span<char> target) {
            const std::int64_t count = static_cast<std::int64_t>(target.size()) / size_of(DType::float32);
            device.copy_to_host(device.compute_stream(), target.data(), values.slice_cols(first, count));
            device.compute_stream().synchronize();
          }};
}

}  // namespace

std::string optimizer_shard_name(int rank, int ranks) {
  return fmt::format("{}{:05}-of-{:05}{}", shard_prefix, rank + 1, ranks, shard_suffix);
}

std::int64_t optimizer_shards_bytes(const ParameterTable& table, const StoredAsFloat32& stored_as_float32) {
  std::int64_t elements = 2 * table.total_elements();
  for (std::size_t i = 0; i < table.parameters().size(); ++i) {
    if (!stored_as_float32.at(i)) elements += table.parameters()[i].elements();
  }
  return elements * size_of(DType::float32);
}

void write_optimizer_shard(const fs::path& file, const StoredAsFloat32& stored_as_float32,
                           TrainableParameters& parameters, Device& device) {
  std::vector<TensorToWrite> tensors;
  for (int block = 0; block < parameters.table().block_count(); ++block) {
    const OwnedState owned = parameters.owned(block);
    for (const OwnedPiece& piece : owned_pieces(parameters.table(), block, owned.part)) {
      for (const StoredState& stored : stored_states) {
        if (stored.state == State::master && stored_as_float32.at(piece.index)) continue;
        const TensorView values = (owned.*stored.view).slice_cols(piece.first_of_part, piece.count);
        tensors.push_back(tensor_of(piece, stored.state, values, device));
      }
    }
  }
  write_safetensors_file(file, tensors);
}

struct OptimizerShards::Pieces {
  std::vector<std::unique_ptr<SafetensorsReader>> files;
  /// Pieces of each state of a parameter, by their first element.
  std::unordered_map<std::string, std::map<std::int64_t, const StoredTensor*>> by_state;

  void add(const StoredTensor& tensor) {
    const std::size_t slash = tensor.name.rfind('/');
    std::int64_t first = -1;
    if (slash != std::string::npos) {
      std::from_chars(tensor.name.data() + slash + 1, tensor.name.data() + tensor.name.size(), first);
    }
    if (first < 0 || tensor.dtype != DType::float32 || tensor.shape.size() != 1) {
      throw_invalid_input("{}: tensor {} is not a piece of optimizer state", tensor.file.string(), tensor.name);
    }
    by_state[tensor.name.substr(0, slash)].emplace(first, &tensor);
  }
};

OptimizerShards::OptimizerShards(const fs::path& folder) : pieces_(std::make_unique<Pieces>()) {
  for (const auto& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().filename();
    if (!name.starts_with(shard_prefix) || !name.ends_with(shard_suffix)) continue;
    pieces_->files.push_back(std::make_unique<SafetensorsReader>(entry.path()));
    for (const StoredTensor& tensor : pieces_->files.back()->tensors()) pieces_->add(tensor);
  }
  if (pieces_->files.empty()) throw_invalid_input("{}: it holds no optimizer state", folder.string());
}

OptimizerShards::~OptimizerShards() = default;

bool OptimizerShards::holds(const ParameterSpec& parameter, State state) const {
  return pieces_->by_state.contains(state_key(parameter, state));
}

void OptimizerShards::read(const ParameterSpec& parameter, State state, std::int64_t first,
                           std::span<float> target) const {
  const std::string key = state_key(parameter, state);
  static const std::map<std::int64_t, const StoredTensor*> nothing;
  const auto found = pieces_->by_state.find(key);
  const auto& pieces = found == pieces_->by_state.end() ? nothing : found->second;
  const std::int64_t end = first + static_cast<std::int64_t>(target.size());
  for (std::int64_t next = first; next < end;) {
    const auto behind = pieces.upper_bound(next);
    const StoredTensor* tensor = behind == pieces.begin() ? nullptr : std::prev(behind)->second;
    const std::int64_t piece_first = tensor == nullptr ? 0 : std::prev(behind)->first;
    const std::int64_t piece_end = tensor == nullptr ? 0 : piece_first + tensor->shape.front();
    if (piece_end <= next) {
      throw_invalid_input("the checkpoint lacks element {} of {}, which has {}", next, key, parameter.elements());
    }
    const std::int64_t count = std::min(end, piece_end) - next;
    std::memcpy(target.data() + (next - first),
                tensor->bytes.data() + static_cast<std::size_t>(next - piece_first) * sizeof(float),
                static_cast<std::size_t>(count) * sizeof(float));
    next += count;
  }
}

void read_owned_state(const fs::path& folder, TrainableParameters& parameters, Device& device,
                      const std::function<void()>& between) {
  const OptimizerShards shards(folder);
  const SafetensorsReader model(folder);
  std::vector<float> values;
  for (int block = 0; block < parameters.table().block_count(); ++block) {
    if (between) between();
    const OwnedState owned = parameters.owned(block);
    for (const OwnedPiece& piece : owned_pieces(parameters.table(), block, owned.part)) {
      for (const StoredState& stored : stored_states) {
        values.resize(static_cast<std::size_t>(piece.count));
        if (stored.state == State::master && !shards.holds(*piece.parameter, State::master)) {
          read_from_model(model, *piece.parameter, piece.first, values);
        } else {
          shards.read(*piece.parameter, stored.state, piece.first, values);
        }
        device.copy_to_device(device.compute_stream(),
                              (owned.*stored.view).slice_cols(piece.first_of_part, piece.count), values.data());
        device.compute_stream().synchronize();
      }
    }
  }
}

}  // namespace skrull
