// Reading a checkpoint's large files, once: what this rank owns goes to its place, and every piece is checked.

#include <algorithm>
#include <map>

#include "owned_pieces.h"
#include "skrull/core/error.h"
#include "skrull/train/checkpoint_state.h"

namespace skrull {
namespace {
namespace fs = std::filesystem;

using State = OptimizerShards::State;

/// Bytes of a file and where they belong.
struct Wanted {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  TensorView target;  ///< the same bytes, as uint8
};

struct Range {
  std::int64_t begin = 0;
  std::int64_t end = 0;
};

/// What this rank wants of one file, and where there is something that some rank wants.
struct FileUse {
  std::vector<Wanted> wanted;
  std::vector<Range> wanted_by_any;
};

/// By file name.
using FileUses = std::map<std::string, FileUse>;

template <class T>
void sort_by_begin(std::vector<T>& ranges) {
  std::sort(ranges.begin(), ranges.end(), [](const T& a, const T& b) { return a.begin < b.begin; });
}

/// The first of the ranges, sorted and apart, that ends behind `offset`.
template <class T>
auto first_behind(const std::vector<T>& ranges, std::int64_t offset) {
  return std::upper_bound(ranges.begin(), ranges.end(), offset,
                          [](std::int64_t at, const T& range) { return at < range.end; });
}

template <class T>
bool overlaps(const std::vector<T>& ranges, const FilePiece& piece) {
  const auto found = first_behind(ranges, piece.begin);
  return found != ranges.end() && found->begin < piece.end();
}

/// Elements of a stored float32 tensor, from `offset` on, belong into `target`.
void want(FileUses& files, const StoredTensor& tensor, std::int64_t offset, const TensorView& target) {
  constexpr std::int64_t element = size_of(DType::float32);
  const std::int64_t bytes = target.elements() * element;
  const std::int64_t begin = tensor.offset + offset * element;
  files[tensor.file.filename()].wanted.push_back(
      {begin, begin + bytes, TensorView(target.data(), DType::uint8, 1, bytes)});
}

/// Master values that the model's own file holds in float32.
const StoredTensor& stored_master(const SafetensorsReader& model, const ParameterSpec& parameter) {
  const StoredTensor* tensor = model.find(parameter.name);
  const bool usable = tensor != nullptr && tensor->dtype == DType::float32 &&
                      tensor->bytes.size() == static_cast<std::size_t>(parameter.elements()) * sizeof(float);
  if (!usable) throw_invalid_input("the checkpoint holds {} neither as master nor in float32", parameter.name);
  return *tensor;
}

/// Where everything lies that the ranks own.
FileUses plan_uses(const OptimizerShards& shards, const SafetensorsReader& model, TrainableParameters& parameters) {
  FileUses files;
  const auto note_any = [&](const StoredTensor& tensor, std::int64_t /*offset*/, std::int64_t /*elements*/) {
    const auto bytes = static_cast<std::int64_t>(tensor.bytes.size());
    files[tensor.file.filename()].wanted_by_any.push_back({tensor.offset, tensor.offset + bytes});
  };
  for (int block = 0; block < parameters.table().block_count(); ++block) {
    const OwnedState owned = parameters.owned(block);
    for (const OwnedPiece& piece : owned_pieces(parameters.table(), block, owned.part)) {
      for (const StoredState& stored : stored_states) {
        const TensorView target = (owned.*stored.view).slice_cols(piece.first_of_part, piece.count);
        if (stored.state == State::master && !shards.holds(*piece.parameter, State::master)) {
          want(files, stored_master(model, *piece.parameter), piece.first, target);
          continue;
        }
        std::int64_t done = 0;
        shards.locate(*piece.parameter, stored.state, piece.first, piece.count,
                      [&](const StoredTensor& tensor, std::int64_t offset, std::int64_t elements) {
                        want(files, tensor, offset, target.slice_cols(done, elements));
                        done += elements;
                      });
      }
    }
  }
  for (const ParameterSpec& parameter : parameters.table().parameters()) {
    for (const StoredState& stored : stored_states) {
      if (stored.state == State::master && !shards.holds(parameter, State::master)) {
        note_any(stored_master(model, parameter), 0, 0);
      } else {
        shards.locate(parameter, stored.state, 0, parameter.elements(), note_any);
      }
    }
  }
  for (auto& [name, use] : files) {
    sort_by_begin(use.wanted);
    sort_by_begin(use.wanted_by_any);
  }
  return files;
}

/// Copies what is wanted of these bytes of a file to its place.
void place(const std::vector<Wanted>& wanted, std::int64_t offset, std::span<const char> bytes, Device& device) {
  const std::int64_t end = offset + static_cast<std::int64_t>(bytes.size());
  for (auto next = first_behind(wanted, offset); next != wanted.end() && next->begin < end; ++next) {
    const std::int64_t begin = std::max(offset, next->begin);
    const std::int64_t count = std::min(end, next->end) - begin;
    device.copy_to_device(device.compute_stream(), next->target.slice_cols(begin - next->begin, count),
                          bytes.data() + (begin - offset));
  }
  device.compute_stream().synchronize();
}

}  // namespace

bool holds_state(const FileRecord& record) {
  return fs::path(record.name).extension() == ".safetensors";
}

void read_owned_state(const fs::path& folder, const Manifest& manifest, int rank, int ranks,
                      TrainableParameters& parameters, Device& device, const std::function<void()>& between) {
  const OptimizerShards shards(folder);
  const SafetensorsReader model(folder);
  const FileUses uses = plan_uses(shards, model, parameters);
  std::int64_t unclaimed = 0;
  for (const FileRecord& record : manifest.files) {
    if (!holds_state(record)) continue;
    const auto found = uses.find(record.name);
    const FileUse use = found == uses.end() ? FileUse() : found->second;
    std::vector<FilePiece> mine;
    for (const FilePiece& piece : record.pieces) {
      const bool claimed = overlaps(use.wanted_by_any, piece);
      if (claimed ? overlaps(use.wanted, piece) : unclaimed++ % ranks == rank) mine.push_back(piece);
    }
    if (mine.empty()) continue;
    read_pieces(folder / record.name, mine, [&](std::int64_t offset, std::span<const char> bytes) {
      if (between) between();
      place(use.wanted, offset, bytes, device);
    });
  }
}

}  // namespace skrull
