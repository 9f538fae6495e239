#include "row_parser.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "skrull/core/error.h"
#include "skrull/core/text.h"
#include "skrull/data/conversation.h"

namespace skrull {
namespace {

/// The keys of one kind of row: the one that makes it, and those that may stand beside it.
struct RowFormat {
  RowKind kind;
  std::string_view key;
  std::array<std::string_view, 2> companions;
};

constexpr std::array row_formats{
    RowFormat{RowKind::messages, "messages", {"tools", "system"}},
    RowFormat{RowKind::text, "text", {}},
    RowFormat{RowKind::input_ids, "input_ids", {"labels"}},
};

/// A key of a format that other tools read, and how to write such rows for this one.
struct ForeignFormat {
  std::string_view key;
  std::string_view advice;
};

constexpr std::array foreign_formats{
    ForeignFormat{"conversations",
                  "ShareGPT rows: rename \"conversations\" to \"messages\", \"from\" and \"value\" to \"role\" and "
                  "\"content\", human to user, gpt to assistant"},
    ForeignFormat{"conversation", "write the turns as \"messages\": [{\"role\": .., \"content\": ..}, ..]"},
    ForeignFormat{"instruction",
                  "Alpaca rows: write {\"messages\": [{\"role\": \"user\", \"content\": instruction and input}, "
                  "{\"role\": \"assistant\", \"content\": output}]}"},
    ForeignFormat{"prompt",
                  "write {\"messages\": [{\"role\": \"user\", \"content\": the prompt}, {\"role\": \"assistant\", "
                  "\"content\": the answer}]}"},
    ForeignFormat{"question",
                  "write {\"messages\": [{\"role\": \"user\", \"content\": the question}, {\"role\": \"assistant\", "
                  "\"content\": the answer}]}"},
    ForeignFormat{"content", "plain text to train on belongs into \"text\""},
};

OrderedJson parse_json(const Row& row, const std::string& file) {
  const std::size_t invalid = find_invalid_utf8(row.text);
  if (invalid != std::string_view::npos) {
    throw_invalid_input("{}: byte 0x{:02X} is not valid UTF-8", locate(row, file, invalid),
                        static_cast<unsigned char>(row.text[invalid]));
  }
  try {
    return parse_row(row.text);
  } catch (const RowSyntaxError& error) {
    throw_invalid_input("{}: invalid JSON: {}", locate(row, file, error.column() > 0 ? error.column() - 1 : 0),
                        error.reason());
  } catch (const InvalidInput& error) {
    throw_invalid_input("{}:{}: {}", file, row.line, error.what());
  }
}

/// The row's keys as a person can read them: a key may be any text of any length.
std::string list_keys(const OrderedJson& value) {
  constexpr std::size_t most_keys = 12;
  constexpr std::size_t most_bytes = 40;
  std::string list;
  std::size_t count = 0;
  for (const auto& [key, content] : value.items()) {
    if (++count > most_keys) return list + fmt::format(" and {} more", value.size() - most_keys);
    const std::string shown = key.size() <= most_bytes ? key : fmt::format("(a key of {} bytes)", key.size());
    list += fmt::format("{}\"{}\"{}", list.empty() ? "" : ", ", shown, content.is_null() ? " (null)" : "");
  }
  return list.empty() ? "no key" : list;
}

std::vector<std::string> format_keys() {
  std::vector<std::string> keys;
  keys.reserve(row_formats.size());
  for (const RowFormat& format : row_formats) keys.emplace_back(format.key);
  return keys;
}

std::string advice_for(const OrderedJson& value) {
  for (const ForeignFormat& foreign : foreign_formats) {
    if (value.contains(foreign.key)) return fmt::format("; {}", foreign.advice);
  }
  for (const auto& [key, unused] : value.items()) {
    const std::string near = nearest(key, format_keys());
    if (!near.empty()) return fmt::format("; did you mean \"{}\"?", near);
  }
  return "";
}

/// Tables of mixed rows are written with null where a row has no such column: null is as good as absent.
bool holds(const OrderedJson& value, std::string_view key) {
  const auto found = value.find(key);
  return found != value.end() && !found->is_null();
}

const RowFormat& find_format(const OrderedJson& value, const Row& row, const std::string& file) {
  const RowFormat* found = nullptr;
  for (const RowFormat& format : row_formats) {
    if (!holds(value, format.key)) continue;
    if (found != nullptr) {
      throw_invalid_input("{}:{}: the row holds both \"{}\" and \"{}\", expected one of them", file, row.line,
                          found->key, format.key);
    }
    found = &format;
  }
  if (found == nullptr) {
    throw_invalid_input("{}:{}: the row holds {}, expected one of \"{}\"{}", file, row.line, list_keys(value),
                        fmt::join(format_keys(), "\", \""), advice_for(value));
  }
  return *found;
}

}  // namespace

ParsedRow read_row(const Row& row, const std::string& file) {
  ParsedRow parsed;
  parsed.value = parse_json(row, file);
  if (!parsed.value.is_object()) {
    throw_invalid_input("{}:{}: the row is of type {}, expected an object with one of \"{}\"", file, row.line,
                        parsed.value.type_name(), fmt::join(format_keys(), "\", \""));
  }
  const RowFormat& format = find_format(parsed.value, row, file);
  parsed.kind = format.kind;
  for (const auto& [key, content] : parsed.value.items()) {
    if (content.is_null()) continue;
    const auto& companions = format.companions;  // unused places are empty names
    const bool is_companion = !key.empty() && std::find(companions.begin(), companions.end(), key) != companions.end();
    if (key != format.key && !is_companion) parsed.ignored.push_back(key);
  }
  return parsed;
}

}  // namespace skrull
