#pragma once
// JSON files with errors that name file, line and column. Include only in sources: nlohmann/json is heavy.

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace skrull {

using Json = nlohmann::json;
/// Keeps the order of keys, as Hugging Face files and chat templates need.
using OrderedJson = nlohmann::ordered_json;

/// Parses a whole file; a UTF-8 byte order mark is skipped. Throws InvalidInput "<file>:<line>:<column>: <reason>".
Json read_json_file(const std::filesystem::path& file);
OrderedJson read_ordered_json_file(const std::filesystem::path& file);

/// The same, and appends to `repeated_keys` the dotted path ("outer.inner") of each key that an object holds a second
/// time (JSON readers keep the last one silently).
OrderedJson read_ordered_json_file(const std::filesystem::path& file, std::vector<std::string>& repeated_keys);

/// The same from the text of a file called `name` in messages.
OrderedJson parse_ordered_json(std::string_view text, const std::string& name, std::vector<std::string>& repeated_keys);

/// "the string "abc"", "the number 1.5", "null", "a list", ...: what was seen where something else was expected.
std::string describe_json(const OrderedJson& value);

/// Writes pretty-printed JSON with a final newline, atomically.
void write_json_file(const std::filesystem::path& file, const OrderedJson& value);

/// "line 3, column 7" of a byte offset into `text` (both from 1).
std::string describe_position(std::string_view text, std::size_t offset);

}  // namespace skrull
