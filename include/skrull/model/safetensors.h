#pragma once
// safetensors files: the on-disk form of Hugging Face weights, single or sharded with an index.

#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "skrull/core/dtype.h"
#include "skrull/core/file.h"

namespace skrull {

struct StoredTensor {
  std::string name;
  DType dtype = DType::float32;  ///< F32, BF16, F16, F64, I32, I64, U8
  std::vector<std::int64_t> shape;
  std::span<const char> bytes;  ///< in the mapped file, little endian
  std::filesystem::path file;
};

/// All tensors of a file, or of a model folder (model.safetensors, or model.safetensors.index.json with its shards).
/// Maps the files; views stay valid as long as this lives. Throws InvalidInput naming file and tensor: missing or
/// truncated file, bad header, overlapping or out-of-range offsets, a shape that does not match its bytes, a tensor of
/// the index that its shard lacks.
class SafetensorsReader {
 public:
  explicit SafetensorsReader(const std::filesystem::path& file_or_folder);
  const std::vector<StoredTensor>& tensors() const { return tensors_; }
  const StoredTensor* find(const std::string& name) const;

 private:
  std::vector<MappedFile> files_;
  std::vector<StoredTensor> tensors_;
};

/// A tensor to be written: `fill` puts its bytes (in `dtype`, little endian) into the given memory when its turn comes,
/// so that the whole model never exists twice.
struct TensorToWrite {
  std::string name;
  DType dtype = DType::float32;
  std::vector<std::int64_t> shape;
  std::function<void(std::span<char>)> fill;
};

/// Writes model.safetensors, or model-0000i-of-0000n.safetensors and model.safetensors.index.json when larger than
/// `shard_bytes`, into an existing folder; header metadata {"format":"pt"}. Each file appears complete or not at all.
/// Throws RunFailure (disk full names the file).
void write_safetensors(const std::filesystem::path& folder, const std::vector<TensorToWrite>& tensors,
                       std::int64_t shard_bytes = std::int64_t{5} * 1000 * 1000 * 1000);

}  // namespace skrull
