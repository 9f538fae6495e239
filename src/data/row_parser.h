#pragma once
// From the text of a row to its JSON and kind, with errors that name file, line and column and never show content.

#include <string>
#include <vector>

#include "skrull/core/json.h"
#include "skrull/data/rows.h"

namespace skrull {

enum class RowKind { messages, text, input_ids };

// NOLINTNEXTLINE(bugprone-exception-escape): nlohmann checks its invariants while moving
struct ParsedRow {
  RowKind kind = RowKind::messages;
  OrderedJson value;                 ///< the whole row, an object
  std::vector<std::string> ignored;  ///< its keys that mean nothing here
};

/// Throws InvalidInput "<file>:<line>: ..." for bytes that are not UTF-8, bad JSON, and a row of no known kind.
ParsedRow read_row(const Row& row, const std::string& file);

}  // namespace skrull
