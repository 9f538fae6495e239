// This rank's part of a checkpoint's large files.

#include <algorithm>
#include <limits>
#include <unordered_map>

#include "owned_pieces.h"
#include "skrull/core/error.h"
#include "skrull/train/checkpoint_state.h"

namespace skrull {
namespace {
namespace fs = std::filesystem;

/// Few enough that they stay in the processor's cache on their way.
constexpr std::int64_t elements_at_once = std::int64_t{1} << 16;

/// Calls `use` with the values on the host, `elements_at_once` at a time, and the element at which they begin.
template <class Use>
void for_values(Device& device, ConstTensorView values, const Use& use) {
  std::vector<float> host(static_cast<std::size_t>(std::min(elements_at_once, values.elements())));
  for (std::int64_t first = 0; first < values.elements(); first += elements_at_once) {
    const std::int64_t count = std::min(elements_at_once, values.elements() - first);
    device.copy_to_host(device.compute_stream(), host.data(), values.slice_cols(first, count));
    device.compute_stream().synchronize();
    use(first, std::span<const float>(host.data(), static_cast<std::size_t>(count)));
  }
}

/// What a rank owns of a parameter, and where its file holds that.
struct PlacedPiece {
  StoredParameter stored;
  OwnedPiece piece;
  std::int64_t offset = 0;  ///< of its first byte in the file
};

/// By file of the layout, in the order of their bytes.
std::vector<std::vector<PlacedPiece>> place_pieces(const ModelWeights& weights, TrainableParameters& parameters) {
  std::unordered_map<std::string, std::size_t> place;
  for (std::size_t i = 0; i < weights.order.size(); ++i) place.emplace(weights.order[i].parameter->name, i);
  std::vector<std::vector<PlacedPiece>> files(weights.layout.files.size());
  for (int block = 0; block < parameters.table().block_count(); ++block) {
    for (const OwnedPiece& piece : owned_pieces(parameters.table(), block, parameters.owned(block).part)) {
      const std::size_t i = place.at(piece.parameter->name);
      const auto& [file, offset] = weights.layout.places[i];
      const StoredParameter& stored = weights.order[i];
      files[file].push_back({stored, piece, offset + piece.first * size_of(stored.dtype)});
    }
  }
  for (auto& pieces : files) {
    std::sort(pieces.begin(), pieces.end(),
              [](const PlacedPiece& a, const PlacedPiece& b) { return a.offset < b.offset; });
  }
  return files;
}

void write_weight(PieceWriter& writer, const PlacedPiece& placed, TrainableParameters& parameters, Device& device) {
  const OwnedPiece& piece = placed.piece;
  const TensorView values =
      parameters.owned(piece.parameter->block).parameter.slice_cols(piece.first_of_part, piece.count);
  std::vector<char> converted;
  writer.seek(placed.offset);
  for_values(device, values, [&](std::int64_t first, std::span<const float> host) {
    converted.resize(host.size() * static_cast<std::size_t>(size_of(placed.stored.dtype)));
    convert_for_storage(placed.stored, piece.first + first, host, converted);
    writer.write(converted.data(), static_cast<std::int64_t>(converted.size()));
  });
}

}  // namespace

StoredAsFloat32 stored_as_float32(const ParameterTable& table, const ModelWeights& weights) {
  std::unordered_map<std::string, DType> dtypes;
  for (const StoredParameter& stored : weights.order) dtypes.emplace(stored.parameter->name, stored.dtype);
  StoredAsFloat32 result;
  for (const ParameterSpec& parameter : table.parameters()) {
    result.push_back(dtypes.at(parameter.name) == DType::float32);
  }
  return result;
}

std::int64_t optimizer_shards_bytes(const ParameterTable& table, const StoredAsFloat32& stored_as_float32) {
  std::int64_t elements = 2 * table.total_elements();
  for (std::size_t i = 0; i < table.parameters().size(); ++i) {
    if (!stored_as_float32.at(i)) elements += table.parameters()[i].elements();
  }
  return elements * size_of(DType::float32);
}

FileRecord write_optimizer_shard(const fs::path& folder, int rank, int ranks, const StoredAsFloat32& stored_as_float32,
                                 TrainableParameters& parameters, Device& device) {
  std::vector<TensorToWrite> tensors;
  std::vector<TensorView> values;
  for (int block = 0; block < parameters.table().block_count(); ++block) {
    const OwnedState owned = parameters.owned(block);
    for (const OwnedPiece& piece : owned_pieces(parameters.table(), block, owned.part)) {
      for (const StoredState& stored : stored_states) {
        if (stored.state == OptimizerShards::State::master && stored_as_float32.at(piece.index)) continue;
        const std::string name = fmt::format("{}/{}", state_key(*piece.parameter, stored.state), piece.first);
        tensors.push_back({name, DType::float32, {piece.count}, {}});
        values.push_back((owned.*stored.view).slice_cols(piece.first_of_part, piece.count));
      }
    }
  }
  const SafetensorsLayout layout = lay_out_safetensors(tensors, std::numeric_limits<std::int64_t>::max());
  const std::string& header = layout.files.front().header;
  const std::string name = optimizer_shard_name(rank, ranks);
  reserve_file(folder / name, layout.bytes());
  PieceWriter writer(folder / name);
  writer.write(header.data(), static_cast<std::int64_t>(header.size()));
  for (const TensorView& view : values) {
    for_values(device, view, [&](std::int64_t /*first*/, std::span<const float> host) {
      writer.write(host.data(), static_cast<std::int64_t>(host.size_bytes()));
    });
  }
  return {name, writer.finish()};
}

std::vector<FileRecord> write_owned_weights(const fs::path& folder, int rank, const ModelWeights& weights,
                                            TrainableParameters& parameters, Device& device) {
  std::vector<FileRecord> records;
  const std::vector<std::vector<PlacedPiece>> files = place_pieces(weights, parameters);
  for (std::size_t i = 0; i < files.size(); ++i) {
    if (files[i].empty() && rank != 0) continue;
    const SafetensorsLayout::File& file = weights.layout.files[i];
    PieceWriter writer(folder / file.name);
    if (rank == 0) writer.write(file.header.data(), static_cast<std::int64_t>(file.header.size()));
    for (const PlacedPiece& placed : files[i]) write_weight(writer, placed, parameters, device);
    records.push_back({file.name, writer.finish()});
  }
  return records;
}

}  // namespace skrull
