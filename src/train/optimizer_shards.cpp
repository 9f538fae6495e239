// Finding pieces of parameters in the optimizer's shards, by name and element.

#include <algorithm>
#include <charconv>
#include <cstring>
#include <map>
#include <unordered_map>

#include "owned_pieces.h"
#include "skrull/core/error.h"
#include "skrull/model/safetensors.h"
#include "skrull/train/checkpoint_state.h"

namespace skrull {
namespace {
namespace fs = std::filesystem;

using State = OptimizerShards::State;

constexpr std::string_view shard_prefix = "optimizer-";
constexpr std::string_view shard_suffix = ".safetensors";

}  // namespace

std::string optimizer_shard_name(int rank, int ranks) {
  return fmt::format("{}{:05}-of-{:05}{}", shard_prefix, rank + 1, ranks, shard_suffix);
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

void OptimizerShards::locate(const ParameterSpec& parameter, State state, std::int64_t first, std::int64_t count,
                             const std::function<void(const StoredTensor&, std::int64_t, std::int64_t)>& use) const {
  const std::string key = state_key(parameter, state);
  static const std::map<std::int64_t, const StoredTensor*> nothing;
  const auto found = pieces_->by_state.find(key);
  const auto& pieces = found == pieces_->by_state.end() ? nothing : found->second;
  const std::int64_t end = first + count;
  for (std::int64_t next = first; next < end;) {
    const auto behind = pieces.upper_bound(next);
    const StoredTensor* tensor = behind == pieces.begin() ? nullptr : std::prev(behind)->second;
    const std::int64_t piece_first = tensor == nullptr ? 0 : std::prev(behind)->first;
    const std::int64_t piece_end = tensor == nullptr ? 0 : piece_first + tensor->shape.front();
    if (piece_end <= next) {
      throw_invalid_input("the checkpoint lacks element {} of {}, which has {}", next, key, parameter.elements());
    }
    const std::int64_t elements = std::min(end, piece_end) - next;
    use(*tensor, next - piece_first, elements);
    next += elements;
  }
}

void OptimizerShards::read(const ParameterSpec& parameter, State state, std::int64_t first,
                           std::span<float> target) const {
  char* next = reinterpret_cast<char*>(target.data());
  locate(parameter, state, first, static_cast<std::int64_t>(target.size()),
         [&](const StoredTensor& tensor, std::int64_t offset, std::int64_t elements) {
           const auto bytes = static_cast<std::size_t>(elements) * sizeof(float);
           std::memcpy(next, tensor.bytes.data() + static_cast<std::size_t>(offset) * sizeof(float), bytes);
           next += bytes;
         });
}

}  // namespace skrull
