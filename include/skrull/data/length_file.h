#pragma once
// Sequence lengths without the sequences: what the scheduler can plan by.

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

namespace skrull {

/// The lengths of one global batch, and where each comes from.
struct LengthBatch {
  std::vector<std::int64_t> lengths;                        ///< tokens
  std::function<std::string(std::size_t)> describe_origin;  ///< "<file>:<line>" of a sequence of the batch
};

/// Reads a text file of lengths, whole numbers from 1 on. A line is one global batch, its lengths separated by spaces;
/// or every line holds one length, and `batch_size` of them in a row are a batch (the last one may be smaller). Throws
/// InvalidInput with file and line for anything else, an empty line, or a file without lengths.
std::vector<LengthBatch> read_length_file(const std::filesystem::path& file, std::int64_t batch_size);

}  // namespace skrull
