#include "skrull/data/conversation.h"

#include <algorithm>
#include <array>
#include <utility>

#include "python_text.h"
#include "skrull/core/error.h"
#include "skrull/core/json.h"

namespace skrull {
namespace {

constexpr std::array<std::pair<std::string_view, Role>, 4> roles{
    {{"system", Role::system}, {"user", Role::user}, {"assistant", Role::assistant}, {"tool", Role::tool}}};

std::string role_names() {
  std::string names;
  for (const auto& [name, role] : roles) names += (names.empty() ? "" : ", ") + std::string(name);
  return names;
}

/// A JSON value with the path that messages call it by.
struct Field {
  const OrderedJson& value;
  std::string path;

  Field at(std::size_t index) const { return {value[index], fmt::format("{}[{}]", path, index)}; }
  /// The member, null when missing.
  Field at(const char* key) const {
    static const OrderedJson null;
    const auto found = value.find(key);
    return {found == value.end() ? null : *found, path.empty() ? key : fmt::format("{}.{}", path, key)};
  }
  bool has(const char* key) const { return value.contains(key); }

  [[noreturn]] void refuse(std::string_view expected) const {
    throw_invalid_input("{}: expected {}, got {}", path, expected, type_name());
  }
  const std::string& text(std::string_view expected) const {
    if (!value.is_string()) refuse(expected);
    return value.get_ref<const std::string&>();
  }

 private:
  std::string_view type_name() const {
    switch (value.type()) {
      case OrderedJson::value_t::null:
        return "null or nothing";
      case OrderedJson::value_t::object:
        return "an object";
      case OrderedJson::value_t::array:
        return "a list";
      case OrderedJson::value_t::string:
        return "text";
      case OrderedJson::value_t::boolean:
        return "true or false";
      default:
        return "a number";
    }
  }
};

/// `text` for a message, or its size when it is long enough to be content.
std::string quote(const std::string& text) {
  constexpr std::size_t longest = 32;
  return text.size() <= longest ? OrderedJson(text).dump() : fmt::format("a text of {} bytes", text.size());
}

/// Collects the fields without meaning, each once.
void note_ignored(const Field& object, std::string_view general_path, std::initializer_list<std::string_view> known,
                  std::vector<std::string>& ignored) {
  for (const auto& item : object.value.items()) {
    if (std::find(known.begin(), known.end(), item.key()) != known.end()) continue;
    std::string field = fmt::format("{}.{}", general_path, item.key());
    if (std::find(ignored.begin(), ignored.end(), field) == ignored.end()) ignored.push_back(std::move(field));
  }
}

/// Calls `use(Field)` with the field or, when it is JSON in a string, with the parsed value.
template <class Use>
auto with_parsed(const Field& field, Use&& use) {
  if (!field.value.is_string()) return use(field);
  const auto parsed = [&] {
    try {
      return parse_row(field.value.get_ref<const std::string&>());
    } catch (const InvalidInput& error) {
      throw_invalid_input("{}: the text is {}", field.path, error.what());
    }
  }();
  return use(Field{parsed, field.path});
}

/// Null, and "" where a string may hold JSON: nothing there.
bool is_absent(const Field& field) {
  return field.value.is_null() || (field.value.is_string() && field.value.get_ref<const std::string&>().empty());
}

Role parse_role(const Field& field) {
  const std::string& name = field.text("one of " + role_names());
  for (const auto& [known, role] : roles) {
    if (name == known) return role;
  }
  throw_invalid_input("{}: {} is not a role; expected one of {}", field.path, quote(name), role_names());
}

std::string parse_content(const Field& field) {
  constexpr std::string_view expected = "text, a list of text parts or null";
  if (field.value.is_null()) return {};
  if (!field.value.is_array()) return field.text(expected);
  std::string content;
  for (std::size_t i = 0; i < field.value.size(); ++i) {
    const Field part = field.at(i);
    if (part.value.is_string()) {
      content += part.value.get_ref<const std::string&>();
      continue;
    }
    if (!part.value.is_object()) part.refuse("text or {\"type\": \"text\", \"text\": ..}");
    const std::string& type = part.at("type").text("\"text\"");
    if (type != "text") {
      throw_invalid_input("{}.type: {} is not supported; expected \"text\"", part.path, quote(type));
    }
    content += part.at("text").text("text");
  }
  return content;
}

std::string parse_arguments(const Field& field) {
  if (is_absent(field)) return "{}";
  return with_parsed(field, [](const Field& arguments) {
    if (!arguments.value.is_object()) arguments.refuse("an object, or an object as JSON in a string");
    return python_json(arguments.value);
  });
}

ToolCall parse_tool_call(const Field& field, std::vector<std::string>& ignored) {
  if (!field.value.is_object()) field.refuse("an object");
  if (field.has("type") && field.at("type").text("\"function\"") != "function") {
    throw_invalid_input("{}.type: {} is not supported; expected \"function\"", field.path,
                        quote(field.value["type"].get<std::string>()));
  }
  const bool wrapped = field.has("function");
  const Field call = wrapped ? field.at("function") : field;
  if (!call.value.is_object()) call.refuse("an object");
  note_ignored(field, "messages[].tool_calls[]", {"type", "function", "id", "index", "name", "arguments"}, ignored);
  const std::string& name = call.at("name").text("the function's name");
  if (name.empty()) throw_invalid_input("{}.name: empty; expected the function's name", call.path);
  return {name, parse_arguments(call.at("arguments"))};
}

std::vector<ToolCall> parse_tool_calls(const Field& field, std::vector<std::string>& ignored) {
  std::vector<ToolCall> calls;
  if (is_absent(field)) return calls;
  with_parsed(field, [&](const Field& list) {
    if (!list.value.is_array()) list.refuse("a list of tool calls");
    for (std::size_t i = 0; i < list.value.size(); ++i) calls.push_back(parse_tool_call(list.at(i), ignored));
  });
  return calls;
}

/// OpenAI's "weight" of an assistant message: 0 leaves it out of the loss.
bool parse_weight(const Field& field) {
  if (field.value.is_null()) return true;
  if (!field.value.is_number() || (field.value != 0 && field.value != 1)) {
    throw_invalid_input("{}: expected 0 (not trained) or 1, got {}", field.path,
                        field.value.is_number() ? python_json(field.value) : "something else");
  }
  return field.value == 1;
}

Message parse_message(const Field& field, std::vector<std::string>& ignored) {
  if (!field.value.is_object()) field.refuse("an object with role and content");
  if (!field.has("role") && field.has("from")) {
    throw_invalid_input(
        "{}.role: missing; ShareGPT turns: rename \"from\" and \"value\" to \"role\" and \"content\", human to user, "
        "gpt to assistant",
        field.path);
  }
  Message message;
  message.role = parse_role(field.at("role"));
  message.content = parse_content(field.at("content"));
  message.tool_calls = parse_tool_calls(field.at("tool_calls"), ignored);
  if (message.role != Role::assistant && !message.tool_calls.empty()) {
    throw_invalid_input("{}.tool_calls: only messages of the assistant may call tools", field.path);
  }
  if (!field.has("content") && message.tool_calls.empty()) {
    throw_invalid_input("{}.content: missing; expected text", field.path);
  }
  message.supervised = parse_weight(field.at("weight"));
  note_ignored(field, "messages[]", {"role", "content", "tool_calls", "weight"}, ignored);
  return message;
}

std::vector<std::string> parse_tools(const Field& field) {
  std::vector<std::string> tools;
  if (is_absent(field)) return tools;
  with_parsed(field, [&](const Field& list) {
    if (list.value.is_null()) return;
    if (!list.value.is_array()) list.refuse("a list of tools, or such a list as JSON in a string");
    for (std::size_t i = 0; i < list.value.size(); ++i) {
      const Field tool = list.at(i);
      if (!tool.value.is_object()) tool.refuse("an object that describes a tool");
      tools.push_back(python_json(tool.value));
    }
  });
  return tools;
}

}  // namespace

Conversation parse_conversation(const OrderedJson& row) {
  const Field root{row, ""};
  if (!row.is_object()) throw_invalid_input("expected an object with messages");
  const Field messages = root.at("messages");
  if (!messages.value.is_array()) messages.refuse("a list of messages");
  if (messages.value.empty()) throw_invalid_input("messages: empty; expected at least one message");
  Conversation conversation;
  for (std::size_t i = 0; i < messages.value.size(); ++i) {
    conversation.messages.push_back(parse_message(messages.at(i), conversation.ignored_fields));
  }
  conversation.tools = parse_tools(root.at("tools"));
  return conversation;
}

}  // namespace skrull
