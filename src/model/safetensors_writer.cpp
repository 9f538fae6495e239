#include <sys/statvfs.h>

#include <algorithm>
#include <cstring>
#include <set>
#include <span>

#include "safetensors_format.h"
#include "skrull/core/error.h"
#include "skrull/core/json.h"
#include "skrull/core/narrow.h"
#include "skrull/core/text.h"
#include "skrull/model/safetensors.h"

namespace skrull {
namespace {
namespace fs = std::filesystem;

constexpr std::int64_t piece_bytes = std::int64_t{16} << 20;

/// In the given order; a new file begins where the next tensor would not fit. How many tensors each file has.
std::vector<std::size_t> split_into_files(const std::vector<TensorToWrite>& tensors, std::int64_t shard_bytes) {
  std::vector<std::size_t> counts(1);
  std::int64_t filled = 0;
  for (const TensorToWrite& tensor : tensors) {
    if (counts.back() > 0 && filled + tensor.bytes() > shard_bytes) {
      counts.push_back(0);
      filled = 0;
    }
    ++counts.back();
    filled += tensor.bytes();
  }
  return counts;
}

std::string_view stored_name(DType dtype) {
  for (const auto& [name, known] : safetensors::dtype_names) {
    if (known == dtype) return name;
  }
  throw_run_failure("{} has no safetensors name", name_of(dtype));
}

/// Its length and its text, padded with spaces to a multiple of 8 bytes, so that the data is aligned.
std::string header_of(std::span<const TensorToWrite> tensors) {
  OrderedJson header = {{"__metadata__", {{"format", "pt"}}}};
  std::int64_t begin = 0;
  for (const TensorToWrite& tensor : tensors) {
    const std::int64_t end = begin + tensor.bytes();
    header[tensor.name] = {
        {"dtype", stored_name(tensor.dtype)}, {"shape", tensor.shape}, {"data_offsets", {begin, end}}};
    begin = end;
  }
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');
  const std::uint64_t length = text.size();
  std::string bytes(safetensors::length_bytes, '\0');
  std::memcpy(bytes.data(), &length, sizeof length);
  return bytes.append(text);
}

void write_file(const fs::path& file, const std::string& header, std::span<const TensorToWrite> tensors) {
  AtomicFileWriter writer(file);
  writer.write(header);
  std::vector<char> piece;
  for (const TensorToWrite& tensor : tensors) {
    const std::int64_t step = piece_bytes / size_of(tensor.dtype);
    for (std::int64_t first = 0; first < tensor.elements(); first += step) {
      const std::int64_t bytes = std::min(step, tensor.elements() - first) * size_of(tensor.dtype);
      piece.resize(static_cast<std::size_t>(bytes));
      tensor.fill(first, piece);
      writer.write(piece.data(), bytes);
    }
  }
  writer.commit();
}

/// Sorted by name, as transformers writes it.
std::string index_of(const std::vector<TensorToWrite>& tensors, const SafetensorsLayout& layout) {
  Json weight_map = Json::object();
  std::int64_t bytes = 0;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    weight_map[tensors[i].name] = layout.files[layout.places[i].file].name;
    bytes += tensors[i].bytes();
  }
  const OrderedJson index = {{"metadata", {{"total_size", bytes}}}, {"weight_map", OrderedJson(weight_map)}};
  return fmt::format("{}\n", index.dump(2));
}

void check_free_space(const fs::path& folder, std::int64_t bytes) {
  struct statvfs status {};
  if (::statvfs(folder.c_str(), &status) != 0) throw_run_failure("{}: no such folder to save into", folder.string());
  const std::int64_t free = narrow<std::int64_t>(
      checked_multiply(narrow<std::int64_t>(status.f_bavail), narrow<std::int64_t>(status.f_frsize)));
  if (bytes > free) {
    throw_run_failure("{}: the disk is too full to save the model: {} needed, {} free; nothing was written",
                      folder.string(), format_bytes(bytes), format_bytes(free));
  }
}

void remove_other_weights(const fs::path& folder, const std::set<std::string>& written) {
  std::error_code failure;
  for (const auto& entry : fs::directory_iterator(folder, failure)) {
    const std::string name = entry.path().filename();
    if (failure || !is_weights_file(name) || written.contains(name)) continue;
    fs::remove(entry.path(), failure);
  }
  if (failure) throw_run_failure("{}: old weight files can't be removed: {}", folder.string(), failure.message());
}

}  // namespace

bool is_weights_file(std::string_view name) {
  const bool shard = name.starts_with("model-") && name.ends_with(".safetensors") && name.find("-of-") != name.npos;
  return shard || name == safetensors::single_file || name == safetensors::index_file;
}

std::int64_t TensorToWrite::elements() const {
  std::int64_t count = 1;
  for (const std::int64_t extent : shape) count = checked_multiply(count, extent);
  return count;
}

std::int64_t SafetensorsLayout::bytes() const {
  std::int64_t sum = 0;
  for (const File& file : files) sum += file.bytes;
  return sum;
}

SafetensorsLayout lay_out_safetensors(const std::vector<TensorToWrite>& tensors, std::int64_t shard_bytes) {
  require(shard_bytes > 0, "shards of {} bytes", shard_bytes);
  std::set<std::string> names;
  for (const TensorToWrite& tensor : tensors) {
    require(names.insert(tensor.name).second, "tensor {} is to be written twice", tensor.name);
  }
  SafetensorsLayout layout;
  const std::vector<std::size_t> counts = split_into_files(tensors, shard_bytes);
  std::size_t first = 0;
  for (std::size_t i = 0; i < counts.size(); ++i) {
    const std::span in_file = std::span(tensors).subspan(first, counts[i]);
    const std::string name = counts.size() == 1 ? std::string(safetensors::single_file)
                                                : fmt::format("model-{:05}-of-{:05}.safetensors", i + 1, counts.size());
    layout.files.push_back({name, header_of(in_file), 0});
    SafetensorsLayout::File& file = layout.files.back();
    file.bytes = static_cast<std::int64_t>(file.header.size());
    for (const TensorToWrite& tensor : in_file) {
      layout.places.push_back({i, file.bytes});
      file.bytes += tensor.bytes();
    }
    first += counts[i];
  }
  if (layout.files.size() > 1) layout.index = index_of(tensors, layout);
  return layout;
}

void write_safetensors_index(const fs::path& folder, const SafetensorsLayout& layout) {
  if (!layout.index.empty()) write_file_atomically(folder / safetensors::index_file, layout.index);
}

void write_safetensors(const fs::path& folder, const std::vector<TensorToWrite>& tensors, std::int64_t shard_bytes) {
  const SafetensorsLayout layout = lay_out_safetensors(tensors, shard_bytes);
  check_free_space(folder, layout.bytes());
  std::set<std::string> written;
  std::size_t first = 0;
  for (std::size_t i = 0; i < layout.files.size(); ++i) {
    const SafetensorsLayout::File& file = layout.files[i];
    const auto count = static_cast<std::size_t>(
        std::count_if(layout.places.begin(), layout.places.end(), [i](const auto& place) { return place.file == i; }));
    write_file(folder / file.name, file.header, std::span(tensors).subspan(first, count));
    written.insert(file.name);
    first += count;
  }
  write_safetensors_index(folder, layout);
  if (!layout.index.empty()) written.insert(safetensors::index_file);
  remove_other_weights(folder, written);
  sync_folder(folder);
}

}  // namespace skrull
