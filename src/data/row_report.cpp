#include "skrull/data/row_report.h"

#include <algorithm>

#include "skrull/core/error.h"
#include "skrull/core/text.h"

namespace skrull {
namespace {

void add_count(RowCount& count, const RowCount& later) {
  if (count.rows == 0) count.first = later.first;
  count.rows += later.rows;
}

void add_ignored(std::vector<IgnoredColumn>& columns, const std::string& name, const RowCount& later) {
  const auto found =
      std::find_if(columns.begin(), columns.end(), [&](const IgnoredColumn& column) { return column.name == name; });
  if (found != columns.end()) {
    add_count(found->count, later);
  } else if (columns.size() < RowReport::most_columns) {
    columns.push_back({name, later});
  }
}

}  // namespace

void RowReport::add(const RowResult& result, const RowOrigin& origin) {
  const RowCount one{1, origin};
  switch (result.outcome) {
    case RowOutcome::kept:
      add_count(kept, one);
      break;
    case RowOutcome::truncated:
      add_count(truncated, one);
      break;
    case RowOutcome::overlength:
      add_count(overlength, one);
      break;
    case RowOutcome::untrained:
      add_count(untrained, one);
      break;
  }
  for (const std::string& name : result.ignored) add_ignored(ignored, name, one);
}

void RowReport::add(const RowReport& later) {
  add_count(kept, later.kept);
  add_count(truncated, later.truncated);
  add_count(overlength, later.overlength);
  add_count(untrained, later.untrained);
  for (const IgnoredColumn& column : later.ignored) add_ignored(ignored, column.name, column.count);
}

std::string describe_origin(const RowOrigin& origin, const std::vector<std::filesystem::path>& files) {
  const auto file = static_cast<std::size_t>(origin.file);
  require(origin.file >= 0 && file < files.size(), "row of data file {}, there are {}", origin.file, files.size());
  return fmt::format("{}:{}", files[file].string(), origin.line);
}

std::string describe_rows(const RowReport& report, const std::vector<std::filesystem::path>& files,
                          std::int64_t cutoff_len) {
  std::vector<std::string> parts;
  const auto add = [&](const RowCount& count, const std::string& what) {
    if (count.rows == 0) return;
    parts.push_back(
        fmt::format("{} {} (first: {})", format_count(count.rows), what, describe_origin(count.first, files)));
  };
  add(report.overlength, fmt::format("dropped as longer than cutoff_len {}", cutoff_len));
  add(report.untrained, "dropped without a token to train on");
  add(report.truncated, fmt::format("truncated to cutoff_len {}", cutoff_len));
  return fmt::format("kept {} of {} rows{}{}", format_count(report.samples()), format_count(report.rows()),
                     parts.empty() ? "" : ": ", fmt::join(parts, ", "));
}

std::vector<std::string> describe_ignored_columns(const RowReport& report,
                                                  const std::vector<std::filesystem::path>& files) {
  constexpr std::size_t most_bytes = 60;
  std::vector<std::string> lines;
  lines.reserve(report.ignored.size());
  for (const IgnoredColumn& column : report.ignored) {
    const bool shown = column.name.size() <= most_bytes;
    lines.push_back(fmt::format("the column {} of {} rows is not used (first: {})",
                                shown ? "\"" + column.name + "\"" : "with a very long name",
                                format_count(column.count.rows), describe_origin(column.count.first, files)));
  }
  return lines;
}

}  // namespace skrull
