#pragma once
// Rows of all files through a SampleBuilder on several threads, results in the order of the rows.

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "skrull/core/file.h"
#include "skrull/data/row_report.h"
#include "skrull/data/rows.h"
#include "skrull/data/sample.h"
#include "skrull/data/token_store.h"

namespace skrull {

/// The data files, mapped.
struct DataFiles {
  explicit DataFiles(const std::vector<std::filesystem::path>& files);

  std::vector<std::filesystem::path> names;
  std::vector<MappedFile> mapped;
  std::int64_t bytes = 0;
};

/// What a number of consecutive rows became. How rows are grouped does not depend on the number of threads.
struct TokenizedRows {
  std::vector<std::int32_t> tokens;   ///< as TokenFileWriter::append() takes them
  std::vector<SampleRecord> records;  ///< likewise
  RowReport report;
  std::vector<std::string> failures;  ///< messages of the bad rows
  std::int64_t rows = 0;
  std::int64_t text_bytes = 0;  ///< of these rows
  std::int64_t bytes_read = 0;  ///< of all files, at the end of these rows
};

/// Calls `consume` on the calling thread for all rows in order, until it returns false. In memory at any time
/// are the tokens of 8 MiB of text per thread, or of one larger row. Rethrows what a thread threw other than
/// InvalidInput.
void tokenize_in_order(const DataFiles& files, const SampleBuilder& builder, std::int64_t threads,
                       const std::function<bool(TokenizedRows&)>& consume);

}  // namespace skrull
