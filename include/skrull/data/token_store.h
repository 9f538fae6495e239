#pragma once
// Every sample of a data set as ids and shifted labels, in one memory-mapped cache file.

#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "skrull/core/file.h"
#include "skrull/data/row_report.h"
#include "skrull/data/sample.h"

namespace skrull {

struct TokenStoreRequest {
  std::vector<std::filesystem::path> files;  ///< data, in order; may be read-only
  const TextEncoder* encoder = nullptr;      ///< null: rows of input_ids alone
  SampleOptions options;
  std::filesystem::path cache_folder;  ///< made when missing
  std::int64_t threads = 0;            ///< 0: one per core
  /// Asked several times a second: true ends the work with Stopped. May be empty.
  std::function<bool()> stop_wanted{};
};

/// Tokenizes the files into `<cache_folder>/tokens-<key>.bin`, on several threads, or finds the file there from an
/// earlier start and checks it; returns its path. The key covers the content of data and tokenizer files and the
/// options, so the result depends on nothing else (not on the number of threads). To be called by one rank; processes
/// that share the folder wait for each other. Memory does not grow with the data but for 40 bytes per sample.
/// Throws InvalidInput that names the first bad row in file order and up to four further ones; when there are no rows;
/// and when no row is kept (with the reasons). RunFailure when the cache can't be written.
std::filesystem::path build_token_store(const TokenStoreRequest& request);

/// One sample in the file. Part of the file format.
struct SampleRecord {
  std::int64_t begin = 0;   ///< of its ids, in tokens from the start of the file; its labels follow
  std::int64_t length = 0;  ///< tokens
  std::int64_t supervised = 0;
  std::int64_t line = 0;
  std::int32_t file = 0;
  std::int32_t truncated = 0;  ///< 0 or 1
};

/// Read-only and shared by all threads; samples in the order of their rows. Spans live as long as the store.
class TokenStore {
 public:
  /// Maps a file made by build_token_store() from these `files` (how messages name them). Throws RunFailure when it is
  /// incomplete or damaged.
  TokenStore(const std::filesystem::path& cache_file, std::vector<std::filesystem::path> files);

  std::int64_t size() const { return static_cast<std::int64_t>(records_.size()); }
  std::span<const std::int32_t> ids(std::int64_t sample) const;
  std::span<const std::int32_t> labels(std::int64_t sample) const;
  std::int64_t length(std::int64_t sample) const { return record(sample).length; }
  /// Labels that are not ignored, at least 1.
  std::int64_t supervised(std::int64_t sample) const { return record(sample).supervised; }
  bool truncated(std::int64_t sample) const { return record(sample).truncated != 0; }
  RowOrigin origin(std::int64_t sample) const { return {record(sample).file, record(sample).line}; }
  /// "<file>:<line>" of the row.
  std::string describe(std::int64_t sample) const { return describe_origin(origin(sample), files_); }

  /// Checksum of all samples and of where their rows stand.
  const std::string& checksum() const { return checksum_; }
  const RowReport& report() const { return report_; }
  const std::vector<std::filesystem::path>& files() const { return files_; }

 private:
  const SampleRecord& record(std::int64_t sample) const;

  std::vector<std::filesystem::path> files_;
  MappedFile mapped_;
  std::span<const std::int32_t> tokens_;
  std::span<const SampleRecord> records_;
  RowReport report_;
  std::string checksum_;
};

}  // namespace skrull
