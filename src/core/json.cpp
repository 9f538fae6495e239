#include "skrull/core/json.h"

#include <algorithm>

#include "skrull/core/error.h"
#include "skrull/core/file.h"

namespace skrull {
namespace {

constexpr std::string_view byte_order_mark = "\xEF\xBB\xBF";

/// The reason alone: nlohmann's messages begin with an id and their own position.
std::string_view reason_of(std::string_view message) {
  const auto colon = message.find(": ");
  return colon == std::string_view::npos ? message : message.substr(colon + 2);
}

template <class Value>
Value parse_file(const std::filesystem::path& file) {
  const MappedFile mapped(file);
  std::string_view text = mapped.text();
  if (text.starts_with(byte_order_mark)) text.remove_prefix(byte_order_mark.size());
  try {
    return Value::parse(text);
  } catch (const typename Value::parse_error& error) {
    throw_invalid_input("{}: {}: {}", file.string(), describe_position(text, error.byte > 0 ? error.byte - 1 : 0),
                        reason_of(error.what()));
  }
}

}  // namespace

Json read_json_file(const std::filesystem::path& file) { return parse_file<Json>(file); }
OrderedJson read_ordered_json_file(const std::filesystem::path& file) { return parse_file<OrderedJson>(file); }

void write_json_file(const std::filesystem::path& file, const OrderedJson& value) {
  write_file_atomically(file, value.dump(2) + "\n");
}

std::string describe_position(std::string_view text, std::size_t offset) {
  const std::string_view before = text.substr(0, std::min(offset, text.size()));
  const auto line = std::count(before.begin(), before.end(), '\n') + 1;
  const auto line_start = before.rfind('\n');
  const auto column = before.size() - (line_start == std::string_view::npos ? 0 : line_start + 1) + 1;
  return fmt::format("line {}, column {}", line, column);
}

}  // namespace skrull
