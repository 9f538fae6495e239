#pragma once
// safetensors files: the on-disk form of Hugging Face weights, single or sharded with an index.

#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "skrull/core/dtype.h"
#include "skrull/core/file.h"

namespace skrull {

struct StoredTensor {
  std::string name;
  DType dtype = DType::float32;  ///< F32, BF16, F16, F64, I32, I64, U8
  std::vector<std::int64_t> shape;
  std::span<const char> bytes;  ///< in the mapped file, little endian; not aligned
  std::filesystem::path file;
  std::int64_t offset = 0;  ///< of the first byte, from the start of the file
};

/// All tensors of a file, or of a model folder (model.safetensors, or model.safetensors.index.json with its shards), in
/// the order of their files' names and of their bytes in them.
/// Maps the files; views stay valid as long as this lives. Throws InvalidInput naming file and tensor: missing or
/// truncated file, bad header, overlapping or out-of-range offsets, bytes that belong to no tensor, a shape that does
/// not match its bytes, a tensor of the index that its shard lacks. A shard's tensors that the index does not place
/// there are left out, as in transformers.
class SafetensorsReader {
 public:
  explicit SafetensorsReader(const std::filesystem::path& file_or_folder);
  const std::vector<StoredTensor>& tensors() const { return tensors_; }
  /// nullptr when there is none.
  const StoredTensor* find(const std::string& name) const;

 private:
  void read_index(const std::filesystem::path& index_file);
  std::vector<StoredTensor> map_file(const std::filesystem::path& file);

  std::vector<MappedFile> files_;
  std::vector<StoredTensor> tensors_;
  std::unordered_map<std::string, std::size_t> by_name_;
};

/// The folder holds model.safetensors or an index.
bool has_safetensors(const std::filesystem::path& folder);

/// Of a saved model, as in Hugging Face tools.
inline constexpr std::int64_t default_shard_bytes = std::int64_t{5} * 1000 * 1000 * 1000;

/// A tensor to be written. When its turn comes, `fill(first_element, target)` puts its elements from `first_element` on
/// (in `dtype`, little endian) into `target`, whose size says how many. It is called for one piece after another, so
/// that no second copy of a tensor ever exists.
struct TensorToWrite {
  std::string name;
  DType dtype = DType::float32;
  std::vector<std::int64_t> shape;
  std::function<void(std::int64_t first_element, std::span<char> target)> fill;

  std::int64_t elements() const;
  std::int64_t bytes() const { return elements() * size_of(dtype); }
};

/// Files of tensors, and where in them each tensor lies.
struct SafetensorsLayout {
  struct File {
    std::string name;
    std::string header;  ///< the first bytes of the file, up to its first tensor
    std::int64_t bytes = 0;
  };
  struct Place {
    std::size_t file = 0;
    std::int64_t offset = 0;  ///< from the start of the file
  };
  std::vector<File> files;
  std::vector<Place> places;  ///< of the tensors in the order given
  std::string index;          ///< text of model.safetensors.index.json; empty when there is one file
  std::int64_t bytes() const;
};

/// The files that write_safetensors() would write of these tensors, whose `fill` is not called. Throws RunFailure for a
/// name that occurs twice.
SafetensorsLayout lay_out_safetensors(const std::vector<TensorToWrite>& tensors, std::int64_t shard_bytes);

/// Writes the index, if there is one. Throws RunFailure naming the file.
void write_safetensors_index(const std::filesystem::path& folder, const SafetensorsLayout& layout);

/// Whether write_safetensors() may write a file of this name.
bool is_weights_file(std::string_view name);

/// Writes model.safetensors, or model-0000i-of-0000n.safetensors and model.safetensors.index.json when larger than
/// `shard_bytes`, into an existing folder; header metadata {"format":"pt"}. A tensor larger than `shard_bytes` has a
/// shard of its own. Each file appears complete or not at all; then weight files of an earlier, differently sharded
/// model are removed. Throws RunFailure: too little free space (checked before the first byte), a failed write (naming
/// the file).
void write_safetensors(const std::filesystem::path& folder, const std::vector<TensorToWrite>& tensors,
                       std::int64_t shard_bytes = default_shard_bytes);

}  // namespace skrull
