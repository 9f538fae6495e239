#pragma once
// Chats as rows of JSON hold them, checked and brought into the one form that chat templates render. Sources that make
// or read rows include skrull/core/json.h as well.

#include <cstddef>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "skrull/core/error.h"

namespace skrull {

enum class Role {
  system,
  user,
  assistant,
  tool,
  unknown  ///< only without validation: templates print nothing for it
};

struct ToolCall {
  std::string name;
  std::string arguments;  ///< JSON as Python's json.dumps(ensure_ascii=False) writes it
};

struct Message {
  Role role = Role::unknown;
  std::string content;
  std::vector<ToolCall> tool_calls;
  bool supervised = true;  ///< of an assistant message: whether its tokens are trained ("weight" is not 0)
};

struct Conversation {
  std::vector<Message> messages;
  std::vector<std::string> tools;  ///< each as json.dumps(ensure_ascii=False) writes it
  /// Fields of the messages that were there but have no meaning here, e.g. "messages[].name"; each once.
  std::vector<std::string> ignored_fields;
};

/// Text that isn't JSON. The message holds the column and never quotes the text.
class RowSyntaxError : public InvalidInput {
 public:
  RowSyntaxError(std::size_t column, std::string reason)
      : InvalidInput(fmt::format("not valid JSON at column {}: {}", column, reason)),
        column_(column),
        reason_(std::move(reason)) {}
  /// In bytes from the beginning of the text, from 1.
  std::size_t column() const { return column_; }
  const std::string& reason() const { return reason_; }

 private:
  std::size_t column_;
  std::string reason_;
};

/// One line of JSON. Keeps the order of keys; an integer beyond 64 bits is kept exactly, as a binary value that holds
/// its digits. Throws RowSyntaxError for what is not JSON or not UTF-8, InvalidInput for what is nested deeper than 512
/// levels.
nlohmann::ordered_json parse_row(std::string_view line);

/// Makes a row's own "system" text its first message, in place of a system message there. Null or empty: none given.
/// Throws InvalidInput for another type.
void apply_system(nlohmann::ordered_json& row);

/// The conversation that training sees, from {"messages": [..], "tools": [..]} (other keys of the row are the
/// caller's). Null content is empty, a list of text parts is joined, tools and tool-call arguments may be JSON in a
/// string, tool calls may be wrapped as {"type": "function", "function": {..}}. Throws InvalidInput that begins with
/// the field
/// ("messages[3].role: ..."), says what was seen and expected and never quotes content; the caller adds file and line.
Conversation parse_conversation(const nlohmann::ordered_json& row);

/// The conversation that the model's Jinja template alone would print, with Python's way to print what isn't text and
/// no other checks: unknown roles vanish, arguments in a string stay a string. Throws InvalidInput with the field where
/// the template itself fails (such as joining text with null).
Conversation read_conversation_as_jinja(const nlohmann::ordered_json& row);

}  // namespace skrull
