#include <sys/statvfs.h>

#include <algorithm>
#include <set>

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

using Shard = std::vector<const TensorToWrite*>;

std::int64_t total_bytes(const std::vector<TensorToWrite>& tensors) {
  std::int64_t bytes = 0;
  for (const TensorToWrite& tensor : tensors) bytes += tensor.bytes();
  return bytes;
}

/// In the given order; a new shard begins where the next tensor would not fit.
std::vector<Shard> split_into_shards(const std::vector<TensorToWrite>& tensors, std::int64_t shard_bytes) {
  std::vector<Shard> shards(1);
  std::int64_t filled = 0;
  for (const TensorToWrite& tensor : tensors) {
    if (!shards.back().empty() && filled + tensor.bytes() > shard_bytes) {
      shards.emplace_back();
      filled = 0;
    }
    shards.back().push_back(&tensor);
    filled += tensor.bytes();
  }
  return shards;
}

std::string_view stored_name(DType dtype) {
  for (const auto& [name, known] : safetensors::dtype_names) {
    if (known == dtype) return name;
  }
  throw_run_failure("{} has no safetensors name", name_of(dtype));
}

/// Padded with spaces to a multiple of 8 bytes, so that the data is aligned.
std::string header_of(const Shard& shard) {
  OrderedJson header = {{"__metadata__", {{"format", "pt"}}}};
  std::int64_t begin = 0;
  for (const TensorToWrite* tensor : shard) {
    const std::int64_t end = begin + tensor->bytes();
    header[tensor->name] = {
        {"dtype", stored_name(tensor->dtype)}, {"shape", tensor->shape}, {"data_offsets", {begin, end}}};
    begin = end;
  }
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');
  return text;
}

void write_shard(const fs::path& file, const Shard& shard) {
  AtomicFileWriter writer(file);
  const std::string header = header_of(shard);
  const std::uint64_t length = header.size();
  writer.write(&length, sizeof length);
  writer.write(header);
  std::vector<char> piece;
  for (const TensorToWrite* tensor : shard) {
    const std::int64_t step = piece_bytes / size_of(tensor->dtype);
    for (std::int64_t first = 0; first < tensor->elements(); first += step) {
      const std::int64_t bytes = std::min(step, tensor->elements() - first) * size_of(tensor->dtype);
      piece.resize(static_cast<std::size_t>(bytes));
      tensor->fill(first, piece);
      writer.write(piece.data(), bytes);
    }
  }
  writer.commit();
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

void write_safetensors_file(const fs::path& file, const std::vector<TensorToWrite>& tensors) {
  Shard all;
  for (const TensorToWrite& tensor : tensors) all.push_back(&tensor);
  write_shard(file, all);
}

std::int64_t TensorToWrite::elements() const {
  std::int64_t count = 1;
  for (const std::int64_t extent : shape) count = checked_multiply(count, extent);
  return count;
}

void write_safetensors(const fs::path& folder, const std::vector<TensorToWrite>& tensors, std::int64_t shard_bytes) {
  require(shard_bytes > 0, "shards of {} bytes", shard_bytes);
  std::set<std::string> names;
  for (const TensorToWrite& tensor : tensors) {
    require(names.insert(tensor.name).second, "tensor {} is to be written twice", tensor.name);
  }
  const std::int64_t bytes = total_bytes(tensors);
  check_free_space(folder, bytes);
  const std::vector<Shard> shards = split_into_shards(tensors, shard_bytes);
  std::set<std::string> written;
  Json weight_map = Json::object();  // sorted by name, as transformers writes it
  for (std::size_t i = 0; i < shards.size(); ++i) {
    const std::string name = shards.size() == 1 ? std::string(safetensors::single_file)
                                                : fmt::format("model-{:05}-of-{:05}.safetensors", i + 1, shards.size());
    write_shard(folder / name, shards[i]);
    written.insert(name);
    for (const TensorToWrite* tensor : shards[i]) weight_map[tensor->name] = name;
  }
  if (shards.size() > 1) {
    write_json_file(folder / safetensors::index_file,
                    {{"metadata", {{"total_size", bytes}}}, {"weight_map", OrderedJson(weight_map)}});
    written.insert(safetensors::index_file);
  }
  remove_other_weights(folder, written);
  sync_folder(folder);
}

}  // namespace skrull
