// read_conversation_as_jinja: what Qwen2.5's template makes of a row without any checks before it.

#include <string>

#include "character_table.h"
#include "python_text.h"
#include "skrull/core/error.h"
#include "skrull/core/json.h"
#include "skrull/data/conversation.h"

namespace skrull {
namespace {

/// The member as Jinja looks it up: null pointer = undefined, also on values that have no members.
const OrderedJson* look_up(const OrderedJson& value, const char* key) {
  if (!value.is_object()) return nullptr;
  const auto found = value.find(key);
  return found == value.end() ? nullptr : &*found;
}

/// {{ value }}
std::string print(const OrderedJson* value) {
  return value == nullptr ? std::string() : python_str(*value);
}

bool is_true(const OrderedJson* value) {
  return value != nullptr && python_truth(*value);
}

/// "text" + value
std::string join(const OrderedJson* value, std::size_t index) {
  if (value != nullptr && value->is_string()) return value->get<std::string>();
  throw_invalid_input("messages[{}].content: the template joins it to text and fails, because it is {}", index,
                      value == nullptr ? "missing" : value->type_name());
}

Role role_of(const OrderedJson& message) {
  const OrderedJson* role = look_up(message, "role");
  if (role == nullptr || !role->is_string()) return Role::unknown;
  const auto& name = role->get_ref<const std::string&>();
  if (name == "system") return Role::system;
  if (name == "user") return Role::user;
  if (name == "assistant") return Role::assistant;
  return name == "tool" ? Role::tool : Role::unknown;
}

std::vector<ToolCall> read_tool_calls(const OrderedJson& calls, std::size_t index) {
  std::vector<ToolCall> result;
  if (!calls.is_array()) {
    throw_invalid_input("messages[{}].tool_calls: the template needs a list, got {}", index, calls.type_name());
  }
  for (const OrderedJson& wrapped : calls) {
    const OrderedJson* function = look_up(wrapped, "function");
    const OrderedJson& call = function == nullptr ? wrapped : *function;
    const OrderedJson* arguments = look_up(call, "arguments");
    if (arguments == nullptr) {
      throw_invalid_input("messages[{}].tool_calls[{}].arguments: missing, the template fails", index, result.size());
    }
    result.push_back({print(look_up(call, "name")), python_json(*arguments)});
  }
  return result;
}

/// {% for tool in tools %} {{ tool | tojson }}: over elements, keys or characters.
std::vector<std::string> read_tools(const OrderedJson& tools) {
  std::vector<std::string> result;
  if (tools.is_array()) {
    for (const OrderedJson& tool : tools) result.push_back(python_json(tool));
  } else if (tools.is_object()) {
    for (const auto& item : tools.items()) result.push_back(python_json(item.key()));
  } else if (tools.is_string()) {
    const auto& text = tools.get_ref<const std::string&>();
    for (std::size_t i = 0; i < text.size();) {
      const std::size_t length = decode_character(text, i).length;
      result.push_back(python_json(text.substr(i, length)));
      i += length;
    }
  } else {
    throw_invalid_input("tools: the template needs a list, got {}", tools.type_name());
  }
  return result;
}

Message read_message(const OrderedJson& value, std::size_t index, bool has_tools) {
  Message message;
  message.role = role_of(value);
  const OrderedJson* content = look_up(value, "content");
  const OrderedJson* calls = look_up(value, "tool_calls");
  if (message.role == Role::tool || (message.role == Role::system && index == 0 && has_tools)) {
    message.content = print(content);
  } else if (message.role == Role::assistant && is_true(calls)) {
    if (is_true(content)) message.content = join(content, index);
    message.tool_calls = read_tool_calls(*calls, index);
  } else if (message.role != Role::unknown) {
    message.content = join(content, index);
  }
  return message;
}

}  // namespace

Conversation read_conversation_as_jinja(const OrderedJson& row) {
  const OrderedJson* messages = look_up(row, "messages");
  if (messages == nullptr || !messages->is_array() || messages->empty()) {
    throw_invalid_input("messages: the template needs a list of at least one message");
  }
  Conversation conversation;
  const OrderedJson* tools = look_up(row, "tools");
  if (is_true(tools)) conversation.tools = read_tools(*tools);
  for (std::size_t i = 0; i < messages->size(); ++i) {
    conversation.messages.push_back(read_message((*messages)[i], i, !conversation.tools.empty()));
  }
  return conversation;
}

}  // namespace skrull
