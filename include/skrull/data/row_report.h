#pragma once
// What became of the rows of a data set, for people.

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "skrull/data/sample.h"

namespace skrull {

/// Where a row begins: index into the list of data files, line from 1.
struct RowOrigin {
  std::int32_t file = 0;
  std::int64_t line = 0;

  bool operator==(const RowOrigin&) const = default;
};

struct RowCount {
  std::int64_t rows = 0;
  RowOrigin first;  ///< when rows > 0

  bool operator==(const RowCount&) const = default;
};

/// A key of rows that means nothing here and was not used.
struct IgnoredColumn {
  std::string name;
  RowCount count;

  bool operator==(const IgnoredColumn&) const = default;
};

struct RowReport {
  static constexpr std::size_t most_columns = 20;

  RowCount kept;  ///< whole; truncated ones are counted apart
  RowCount truncated;
  RowCount overlength;
  RowCount untrained;
  std::vector<IgnoredColumn> ignored;  ///< the first most_columns of them

  std::int64_t rows() const { return kept.rows + truncated.rows + overlength.rows + untrained.rows; }
  std::int64_t samples() const { return kept.rows + truncated.rows; }

  void add(const RowResult& result, const RowOrigin& origin);
  /// `later`: the report of rows behind these.
  void add(const RowReport& later);

  bool operator==(const RowReport&) const = default;
};

/// "<file>:<line>".
std::string describe_origin(const RowOrigin& origin, const std::vector<std::filesystem::path>& files);

/// "kept 3,190 of 3,200 rows: 7 dropped as longer than cutoff_len 8192 (first: data.jsonl:17), ...".
std::string describe_rows(const RowReport& report, const std::vector<std::filesystem::path>& files,
                          std::int64_t cutoff_len);

/// One line per ignored column, for warnings: "the column \"id\" of 12 rows is not used (first: data.jsonl:1)".
std::vector<std::string> describe_ignored_columns(const RowReport& report,
                                                  const std::vector<std::filesystem::path>& files);

}  // namespace skrull
