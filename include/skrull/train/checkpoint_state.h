#pragma once
// Parameters and optimizer state in the files of a checkpoint: every rank writes what it owns, and finds what it owns,
// however many ranks wrote it.

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "skrull/device/device.h"
#include "skrull/model/model_io.h"
#include "skrull/parallel/trainable_parameters.h"
#include "skrull/train/checkpoint.h"

namespace skrull {

/// "optimizer-00002-of-00004.safetensors" of rank 1 of 4.
std::string optimizer_shard_name(int rank, int ranks);

/// Whether the model's files store each parameter of the table as float32, so that it is its own master.
using StoredAsFloat32 = std::vector<bool>;

StoredAsFloat32 stored_as_float32(const ParameterTable& table, const ModelWeights& weights);

/// Bytes of all ranks' shards together.
std::int64_t optimizer_shards_bytes(const ParameterTable& table, const StoredAsFloat32& stored_as_float32);

/// Writes this rank's part of the optimizer state into `folder`: both moments, and the fp32 master of every parameter
/// that the model beside it does not hold in float32. Tensors are named <parameter>/<state>/<first element>:
/// consecutive elements of one parameter, so any layout can find its own in them. Not collective. Throws RunFailure
/// naming the file.
FileRecord write_optimizer_shard(const std::filesystem::path& folder, int rank, int ranks,
                                 const StoredAsFloat32& stored_as_float32, TrainableParameters& parameters,
                                 Device& device);

/// Writes this rank's part of the model's weight files, which are there in their full size; rank 0 their headers, too.
/// Not collective. Throws RunFailure naming the file, or the weight that is not finite.
std::vector<FileRecord> write_owned_weights(const std::filesystem::path& folder, int rank, const ModelWeights& weights,
                                            TrainableParameters& parameters, Device& device);

/// Reads elements of any parameter out of the shards of a checkpoint, however many ranks wrote them.
class OptimizerShards {
 public:
  enum class State { master, first_moment, second_moment };

  /// Maps the files. Throws InvalidInput naming the file for a broken one, and the folder when there is none.
  explicit OptimizerShards(const std::filesystem::path& folder);
  ~OptimizerShards();
  OptimizerShards(const OptimizerShards&) = delete;
  OptimizerShards& operator=(const OptimizerShards&) = delete;

  bool holds(const ParameterSpec& parameter, State state) const;
  /// Elements [first, first + target.size()) of the parameter. Throws InvalidInput when some of them are missing.
  void read(const ParameterSpec& parameter, State state, std::int64_t first, std::span<float> target) const;
  /// Where elements [first, first + count) lie: calls `use` with `elements` of a stored tensor, from its element
  /// `offset` on, for one stretch after another. Throws likewise.
  void locate(
      const ParameterSpec& parameter, State state, std::int64_t first, std::int64_t count,
      const std::function<void(const StoredTensor& tensor, std::int64_t offset, std::int64_t elements)>& use) const;

 private:
  struct Pieces;
  std::unique_ptr<Pieces> pieces_;
};

/// Whether read_owned_state() looks at the file's content. The others are small.
bool holds_state(const FileRecord& record);

/// Fills owned() of every block with the state in `folder` and checks the content of all files that hold_state() on the
/// way; what no rank needs, the ranks share out. Each rank reads by itself; restore() is left to the caller. `between`
/// is called for each step of that; what it throws ends the work. Throws InvalidInput naming the file that is damaged,
/// or what is missing.
void read_owned_state(const std::filesystem::path& folder, const Manifest& manifest, int rank, int ranks,
                      TrainableParameters& parameters, Device& device, const std::function<void()>& between = {});

}  // namespace skrull
