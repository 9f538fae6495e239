// Format: https://huggingface.co/docs/safetensors (header length, JSON header, one gapless buffer of tensors).

#include <algorithm>
#include <bit>
#include <cstring>
#include <map>
#include <optional>
#include <set>

#include "safetensors_format.h"
#include "skrull/core/error.h"
#include "skrull/core/json.h"
#include "skrull/model/safetensors.h"

namespace skrull {
namespace {
namespace fs = std::filesystem;
using safetensors::length_bytes;

static_assert(std::endian::native == std::endian::little, "tensor bytes are used as they lie in the file");

/// The format's own limit.
constexpr std::uint64_t longest_header = 100'000'000;

/// One file's header, being read.
class Header {
 public:
  Header(fs::path file, std::span<const char> bytes) : file_(std::move(file)) {
    if (bytes.size() < length_bytes) {
      refuse("{} bytes are too few for a safetensors file; is it truncated?", bytes.size());
    }
    if (std::string_view(bytes.data(), bytes.size()).starts_with("version https://git-lfs")) {
      refuse("is a pointer of Git LFS and not the file itself; fetch it with \"git lfs pull\"");
    }
    std::uint64_t length = 0;
    std::memcpy(&length, bytes.data(), length_bytes);
    if (length > longest_header) refuse("header length {}: this is not a safetensors file", length);
    if (length > bytes.size() - length_bytes) {
      refuse("the header of {} bytes ends behind the end of the file ({} bytes); the file is truncated", length,
             bytes.size());
    }
    const auto text_bytes = static_cast<std::size_t>(length);
    parse({bytes.data() + length_bytes, text_bytes});
    data_begin_ = length_bytes + text_bytes;
    data_ = bytes.subspan(data_begin_);
  }

  /// In the order of their bytes.
  std::vector<StoredTensor> tensors() const {
    std::vector<Placed> placed;
    for (const auto& [name, value] : values_.items()) {
      if (name != "__metadata__") placed.push_back(read_tensor(name, value));
    }
    std::stable_sort(placed.begin(), placed.end(), [](const Placed& a, const Placed& b) { return a.begin < b.begin; });
    std::vector<StoredTensor> result;
    std::uint64_t end = 0;
    for (Placed& entry : placed) {
      if (entry.begin < end) refuse("tensor {} overlaps the tensor before it", entry.tensor.name);
      if (entry.begin > end)
        refuse("{} bytes before tensor {} belong to no tensor", entry.begin - end, entry.tensor.name);
      end = entry.begin + entry.tensor.bytes.size();
      result.push_back(std::move(entry.tensor));
    }
    if (end != data_.size()) refuse("{} bytes at the end belong to no tensor", data_.size() - end);
    return result;
  }

 private:
  struct Placed {
    StoredTensor tensor;
    std::uint64_t begin = 0;
  };

  template <class... Args>
  [[noreturn]] void refuse(fmt::format_string<Args...> message, Args&&... args) const {
    throw_invalid_input("{}: {}", file_.string(), fmt::format(message, std::forward<Args>(args)...));
  }

  void parse(std::string_view text) {
    std::set<std::string> names;
    std::optional<std::string> twice;
    const auto note_duplicates = [&](int depth, Json::parse_event_t event, Json& key) {
      if (depth == 1 && event == Json::parse_event_t::key && !names.insert(key.get<std::string>()).second) {
        twice = key.get<std::string>();
      }
      return true;
    };
    try {
      values_ = Json::parse(text, note_duplicates);
    } catch (const Json::parse_error& error) {
      refuse("the header is not JSON (byte {} of it): the file is damaged or no safetensors file", error.byte);
    }
    if (!values_.is_object()) refuse("the header is not a JSON object");
    if (twice) refuse("tensor {} appears twice", *twice);
  }

  Placed read_tensor(const std::string& name, const Json& value) const {
    if (!value.is_object()) refuse("tensor {}: expected an object in the header", name);
    Placed placed;
    placed.tensor.name = name;
    placed.tensor.file = file_;
    placed.tensor.dtype = read_dtype(name, value);
    const Json offsets = value.value("data_offsets", Json());
    const bool numbers =
        offsets.is_array() && offsets.size() == 2 && offsets[0].is_number_unsigned() && offsets[1].is_number_unsigned();
    if (!numbers) refuse("tensor {}: data_offsets must be two byte offsets, got {}", name, offsets.dump());
    placed.begin = offsets[0].get<std::uint64_t>();
    const auto end = offsets[1].get<std::uint64_t>();
    if (placed.begin > end) refuse("tensor {}: its data ends ({}) before it begins ({})", name, end, placed.begin);
    if (end > data_.size()) {
      refuse("tensor {}: its data ends at byte {} of {}; the file is truncated", name, end, data_.size());
    }
    placed.tensor.offset = static_cast<std::int64_t>(data_begin_ + placed.begin);
    placed.tensor.bytes =
        data_.subspan(static_cast<std::size_t>(placed.begin), static_cast<std::size_t>(end - placed.begin));
    read_shape(value, placed.tensor);
    return placed;
  }

  DType read_dtype(const std::string& name, const Json& value) const {
    const Json dtype = value.value("dtype", Json());
    for (const auto& [known, result] : safetensors::dtype_names) {
      if (dtype == known) return result;
    }
    refuse("tensor {}: dtype {} is not supported (F32, BF16 and F16 weights are)", name, dtype.dump());
  }

  void read_shape(const Json& value, StoredTensor& tensor) const {
    const Json shape = value.value("shape", Json());
    if (!shape.is_array()) refuse("tensor {}: its shape is missing", tensor.name);
    // In bytes; saturates far above any file, so that a product that overflows can't match.
    std::uint64_t bytes = static_cast<std::uint64_t>(size_of(tensor.dtype));
    for (const Json& extent : shape) {
      const bool fits = extent.is_number_unsigned() && extent <= INT64_MAX;
      if (!fits) refuse("tensor {}: bad shape {}", tensor.name, shape.dump());
      tensor.shape.push_back(extent.get<std::int64_t>());
      if (__builtin_mul_overflow(bytes, extent.get<std::uint64_t>(), &bytes)) {
        refuse("tensor {}: the shape {} is beyond any file", tensor.name, shape.dump());
      }
    }
    if (bytes != tensor.bytes.size()) {
      refuse("tensor {}: shape {} in {} needs {} bytes, the header gives it {}", tensor.name, shape.dump(),
             name_of(tensor.dtype), bytes, tensor.bytes.size());
    }
  }

  fs::path file_;
  Json values_;
  std::size_t data_begin_ = 0;
  std::span<const char> data_;
};

fs::path weights_of(const fs::path& folder) {
  for (const char* name : {safetensors::single_file, safetensors::index_file}) {
    if (fs::exists(folder / name)) return folder / name;
  }
  const bool pickled = fs::exists(folder / "pytorch_model.bin") || fs::exists(folder / "pytorch_model.bin.index.json");
  throw_invalid_input("{}: no {} and no {}{}", folder.string(), safetensors::single_file, safetensors::index_file,
                      pickled ? "; pytorch_model.bin is not read: save the model with safe_serialization=True" : "");
}

/// File name -> names of its tensors.
std::map<std::string, std::set<std::string>> read_weight_map(const fs::path& index_file) {
  const Json index = read_json_file(index_file);
  if (!index.is_object() || !index.contains("weight_map") || !index["weight_map"].is_object()) {
    throw_invalid_input("{}: key \"weight_map\" (tensor name to file name) is missing", index_file.string());
  }
  std::map<std::string, std::set<std::string>> files;
  for (const auto& [tensor, file] : index["weight_map"].items()) {
    const bool plain = file.is_string() && fs::path(file.get<std::string>()).filename() == file.get<std::string>();
    if (!plain) {
      throw_invalid_input("{}: tensor {}: expected the name of a file in the same folder, got {}", index_file.string(),
                          tensor, file.dump());
    }
    files[file.get<std::string>()].insert(tensor);
  }
  return files;
}

}  // namespace

bool has_safetensors(const fs::path& folder) {
  return fs::exists(folder / safetensors::single_file) || fs::exists(folder / safetensors::index_file);
}

SafetensorsReader::SafetensorsReader(const fs::path& file_or_folder) {
  if (!fs::exists(file_or_folder)) throw_invalid_input("{}: no such file or folder", file_or_folder.string());
  const fs::path file = fs::is_directory(file_or_folder) ? weights_of(file_or_folder) : file_or_folder;
  if (file.extension() == ".json") {
    read_index(file);
  } else {
    tensors_ = map_file(file);
  }
  for (std::size_t i = 0; i < tensors_.size(); ++i) by_name_.emplace(tensors_[i].name, i);
}

void SafetensorsReader::read_index(const fs::path& index_file) {
  for (const auto& [shard, names] : read_weight_map(index_file)) {
    const fs::path file = index_file.parent_path() / shard;
    if (!fs::exists(file)) {
      throw_invalid_input("{}: the shard {} that it names is missing", index_file.string(), file.string());
    }
    std::set<std::string> missing = names;
    for (StoredTensor& tensor : map_file(file)) {
      if (missing.erase(tensor.name) == 1) tensors_.push_back(std::move(tensor));
    }
    if (!missing.empty()) {
      throw_invalid_input("{}: tensor {} ({} in all) is not in {}", index_file.string(), *missing.begin(),
                          missing.size(), file.string());
    }
  }
}

std::vector<StoredTensor> SafetensorsReader::map_file(const fs::path& file) {
  files_.emplace_back(file);
  return Header(file, files_.back().bytes()).tensors();
}

const StoredTensor* SafetensorsReader::find(const std::string& name) const {
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? nullptr : &tensors_[found->second];
}

}  // namespace skrull
