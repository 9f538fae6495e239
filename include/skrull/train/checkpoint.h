#pragma once
// checkpoint-<step>/: a Hugging Face folder, beside it the optimizer's shards and the trainer's state, and a manifest
// of them all. What is complete and unchanged is what its manifest says.

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

namespace skrull {

inline constexpr const char* manifest_file = "manifest.json";

/// One file of a checkpoint, as it was written.
struct FileRecord {
  std::string name;
  std::int64_t bytes = 0;
  std::string checksum;  ///< XXH3-128 of the content
};

/// Reads the file; `between` as in Checksum::add. Throws InvalidInput when that fails.
FileRecord record_file(const std::filesystem::path& folder, const std::string& name,
                       const std::function<void()>& between = {});
/// One line each; for sending them between ranks.
std::string records_to_text(const std::vector<FileRecord>& records);
std::vector<FileRecord> records_from_text(const std::string& text);

struct Manifest {
  std::int64_t step = 0;
  bool resumable = true;  ///< false: the model alone (save_only_model)
  std::vector<FileRecord> files;
};

/// Written last: from then on the checkpoint is complete. Throws RunFailure.
void write_manifest(const std::filesystem::path& folder, const Manifest& manifest);
/// Throws InvalidInput: there is none, or it is damaged (it holds a checksum of itself).
Manifest read_manifest(const std::filesystem::path& folder);
/// What is wrong with a file of a checkpoint: it is missing, of another size or changed; "" when it is as it was
/// written. `between` as in Checksum::add.
std::string damage_of(const std::filesystem::path& folder, const FileRecord& record,
                      const std::function<void()>& between = {});

/// "optimizer-00002-of-00004.safetensors" of rank 1 of 4.
std::string optimizer_shard_name(int rank, int ranks);

/// Whether save_model_folder() stores each parameter of the table as float32, so that it is its own master.
using StoredAsFloat32 = std::vector<bool>;

/// Bytes of all ranks' shards together.
std::int64_t optimizer_shards_bytes(const ParameterTable& table, const StoredAsFloat32& stored_as_float32);

/// This rank's part of the optimizer state: both moments, and the fp32 master of every parameter that the model beside
/// it does not hold in float32. Tensors are named <parameter>/<state>/<first element>: consecutive elements of one
/// parameter, so any layout can find its own in them. Not collective. Throws RunFailure naming the file.
void write_optimizer_shard(const std::filesystem::path& file, const StoredAsFloat32& stored_as_float32,
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

 private:
  struct Pieces;
  std::unique_ptr<Pieces> pieces_;
};

/// Fills owned() of every block with the state in `folder`. Each rank reads its own part alone; restore() is left to
/// the caller. `between` is called before each block, as often on every rank; what it throws ends the work. Throws
/// InvalidInput naming what is missing.
void read_owned_state(const std::filesystem::path& folder, TrainableParameters& parameters, Device& device,
                      const std::function<void()>& between = {});

}  // namespace skrull
