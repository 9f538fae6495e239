#pragma once
// JSON files with errors that name file, line and column. Include only in sources: nlohmann/json is heavy.

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace skrull {

using Json = nlohmann::json;
/// Keeps the order of keys, as Hugging Face files and chat templates need.
using OrderedJson = nlohmann::ordered_json;

/// Parses a whole file; a UTF-8 byte order mark is skipped. Throws InvalidInput "<file>:<line>:<column>: <reason>".
Json read_json_file(const std::filesystem::path& file);
OrderedJson read_ordered_json_file(const std::filesystem::path& file);

/// Writes pretty-printed JSON with a final newline, atomically.
void write_json_file(const std::filesystem::path& file, const OrderedJson& value);

/// "line 3, column 7" of a byte offset into `text` (both from 1).
std::string describe_position(std::string_view text, std::size_t offset);

}  // namespace skrull
