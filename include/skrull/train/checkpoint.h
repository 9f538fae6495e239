#pragma once
// checkpoint-<step>/: a Hugging Face folder, beside it the optimizer's shards and the trainer's state, and a manifest
// of them all. What is complete and unchanged is what its manifest says. What stands in the large files:
// checkpoint_state.h.

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "skrull/core/file_pieces.h"

namespace skrull {

inline constexpr const char* manifest_file = "manifest.json";

/// One file of a checkpoint, as it was written: pieces, which several ranks may have written, or a rank's own of them.
struct FileRecord {
  std::string name;
  std::vector<FilePiece> pieces;
  /// Of a file whose pieces are complete.
  std::int64_t bytes() const { return pieces.empty() ? 0 : pieces.back().end(); }
};

/// Reads the file. Throws InvalidInput when that fails.
FileRecord record_file(const std::filesystem::path& folder, const std::string& name);
/// For sending them between ranks.
std::string records_to_text(const std::vector<FileRecord>& records);
std::vector<FileRecord> records_from_text(const std::string& text);
/// One record for each file, of what several ranks wrote of it. Throws RunFailure when something is missing.
std::vector<FileRecord> join_records(const std::vector<FileRecord>& parts);

struct Manifest {
  std::int64_t step = 0;
  bool resumable = true;  ///< false: the model alone (save_only_model)
  std::vector<FileRecord> files;
};

/// Written last: from then on the checkpoint is complete. Throws RunFailure.
void write_manifest(const std::filesystem::path& folder, const Manifest& manifest);
/// Throws InvalidInput: there is none, or it is damaged (it holds a checksum of itself).
Manifest read_manifest(const std::filesystem::path& folder);
/// What is wrong with the size of a file of a checkpoint: it is missing, shorter or longer; "" when nothing is.
std::string wrong_size_of(const std::filesystem::path& folder, const FileRecord& record);
/// The same, and whether its content changed: reads the file. `between` is called before each step of that; what it
/// throws ends the work.
std::string damage_of(const std::filesystem::path& folder, const FileRecord& record,
                      const std::function<void()>& between = {});

}  // namespace skrull
