#include "skrull/data/conversation.h"

#include <string>
#include <vector>

#include "data/errors.h"
#include "python_text.h"
#include "skrull/core/json.h"
#include "support/catch.h"

using namespace skrull;
using test::contains;

namespace {

Conversation parse(const std::string& line) {
  return parse_conversation(parse_row(line));
}

std::string error_of(const std::string& line) {
  return test::invalid_input_of([&] { parse(line); });
}

/// A row with one message.
std::string row_of(const std::string& message) {
  return R"({"messages": [)" + message + "]}";
}

}  // namespace

TEST_CASE("numbers and text are printed as Python's json.dumps does") {
  // Expected values are those of Python 3.11.
  const std::vector<std::pair<std::string, std::string>> cases{
      {"[1, -0, 0, 2.0, -0.0]", "[1, 0, 0, 2.0, -0.0]"},
      {"[1e22, 1E+5, 1e15, 1e16, 123456789012345680.0]",
       "[1e+22, 100000.0, 1000000000000000.0, 1e+16, 1.2345678901234568e+17]"},
      {"[-1e-7, 0.0001, 0.00001, 1.5e-10, 5e-324]", "[-1e-07, 0.0001, 1e-05, 1.5e-10, 5e-324]"},
      {"[0.1, 0.30000000000000004, 3.14159, 1.7976931348623157e308]",
       "[0.1, 0.30000000000000004, 3.14159, 1.7976931348623157e+308]"},
      {"[18446744073709551615, 18446744073709551616, -9223372036854775809, 123456789012345678901234567890]",
       "[18446744073709551615, 18446744073709551616, -9223372036854775809, 123456789012345678901234567890]"},
      {R"({"z": null, "a": [true, false, {}], "z": 1})", R"({"z": 1, "a": [true, false, {}]})"},
      {R"("q\"b\\s\/n\n\t\r\b\f\u0001\u007f\u00e9\u4f60\ud83d\ude00<&>'")",
       "\"q\\\"b\\\\s/n\\n\\t\\r\\b\\f\\u0001\x7F\u00E9\u4F60\U0001F600<&>'\""},
  };
  for (const auto& [json, expected] : cases) CHECK(python_json(parse_row(json)) == expected);
}

TEST_CASE("values are printed as Python's str does") {
  CHECK(python_str(parse_row(R"("a'b")")) == "a'b");
  CHECK(python_str(parse_row("null")) == "None");
  CHECK(python_str(parse_row("[true, 1.0, 1e30]")) == "[True, 1.0, 1e+30]");
  CHECK(python_str(parse_row(R"({"k": "a'b", "l": "\"", "m": "'\"\n\\", "n": "\u00e9\u0001\u200b\ud83d\ude00"})")) ==
        "{'k': \"a'b\", 'l': '\"', 'm': '\\'\"\\n\\\\', 'n': '\u00E9\\x01\\u200b\U0001F600'}");
  for (const char* value : {"null", "false", "0", "0.0", "\"\"", "[]", "{}"})
    CHECK_FALSE(python_truth(parse_row(value)));
  for (const char* value : {"true", "-1", "0.5", "\"0\"", "[0]", "{\"a\": 0}", "99999999999999999999"}) {
    CHECK(python_truth(parse_row(value)));
  }
}

TEST_CASE("rows that are not JSON say where, without quoting the row") {
  CHECK(contains(test::invalid_input_of([] { parse_row(R"({"a": "secret)"); }), "not valid JSON at column"));
  for (const char* line :
       {R"({"a": "secret)", R"({"secret" 1})", "{\"a\": \"secret\xFF\"}", R"({"a": "secret\ud800"})"}) {
    CHECK_FALSE(contains(test::invalid_input_of([&] { parse_row(line); }), "secret"));
  }
  CHECK(contains(test::invalid_input_of([] { parse_row(std::string(600, '[') + std::string(600, ']')); }),
                 "nested deeper than 512"));
  CHECK(parse_row(std::string(512, '[') + std::string(512, ']')).is_array());
}

TEST_CASE("a conversation is brought into one form") {
  const Conversation conversation = parse(R"({"messages": [
      {"role": "system", "content": null},
      {"role": "user", "content": [{"type": "text", "text": "a"}, "b", {"type": "text", "text": "c"}], "name": "x"},
      {"role": "assistant", "tool_calls": [
        {"id": "1", "type": "function", "function": {"name": "f", "arguments": "{\"b\": 2.0, \"a\": [1e22]}"}},
        {"name": "g", "arguments": {"x": "\u00e9"}},
        {"name": "h", "arguments": ""},
        {"name": "i"}]},
      {"role": "tool", "content": "r", "tool_call_id": "1", "name": "f"},
      {"role": "assistant", "content": "d", "tool_calls": [], "weight": 0},
      {"role": "assistant", "content": "e", "tool_calls": null, "weight": 1}],
    "tools": "[{\"name\": \"f\", \"n\": 1.0}]", "other": 5})");
  REQUIRE(conversation.messages.size() == 6);
  CHECK(conversation.messages[0].role == Role::system);
  CHECK(conversation.messages[0].content.empty());
  CHECK(conversation.messages[1].role == Role::user);
  CHECK(conversation.messages[1].content == "abc");
  const Message& calling = conversation.messages[2];
  CHECK(calling.role == Role::assistant);
  CHECK(calling.content.empty());
  REQUIRE(calling.tool_calls.size() == 4);
  CHECK(calling.tool_calls[0].name == "f");
  CHECK(calling.tool_calls[0].arguments == R"({"b": 2.0, "a": [1e+22]})");
  CHECK(calling.tool_calls[1].arguments == "{\"x\": \"\u00E9\"}");
  CHECK(calling.tool_calls[2].arguments == "{}");
  CHECK(calling.tool_calls[3].arguments == "{}");
  CHECK(conversation.messages[3].role == Role::tool);
  CHECK_FALSE(conversation.messages[4].supervised);
  CHECK(conversation.messages[5].supervised);
  CHECK(conversation.tools == std::vector<std::string>{R"({"name": "f", "n": 1.0})"});
  CHECK(conversation.ignored_fields == std::vector<std::string>{"messages[].name", "messages[].tool_call_id"});
  const std::string message = R"({"role": "user", "content": "a"})";
  for (const char* tools : {"null", "[]", "\"\"", "\"[]\"", "\"null\""}) {
    CHECK(parse(R"({"messages": [)" + message + R"(], "tools": )" + tools + "}").tools.empty());
  }
}

TEST_CASE("errors name the field, what was seen and what is expected") {
  CHECK(error_of("[1]") == "expected an object with messages");
  CHECK(error_of("{}") == "messages: expected a list of messages, got null or nothing");
  CHECK(error_of(R"({"messages": {"role": "user"}})") == "messages: expected a list of messages, got an object");
  CHECK(error_of(R"({"messages": []})") == "messages: empty; expected at least one message");
  CHECK(error_of(R"({"messages": ["hi"]})") == "messages[0]: expected an object with role and content, got text");
  CHECK(error_of(R"({"messages": [{"role": "user", "content": "a"}, {"role": "human", "content": "b"}]})") ==
        "messages[1].role: \"human\" is not a role; expected one of system, user, assistant, tool");
  CHECK(error_of(row_of(R"({"content": "b"})")) ==
        "messages[0].role: expected one of system, user, assistant, tool, got null or nothing");
  CHECK(error_of(row_of(R"({"role": 3, "content": "b"})")) ==
        "messages[0].role: expected one of system, user, assistant, tool, got a number");
  CHECK(error_of(row_of(R"({"role": "user"})")) == "messages[0].content: missing; expected text");
  CHECK(error_of(row_of(R"({"role": "assistant", "content": {"answer": "secret"}})")) ==
        "messages[0].content: expected text, a list of text parts or null, got an object");
  CHECK(error_of(row_of(R"({"role": "assistant", "content": 7})")) ==
        "messages[0].content: expected text, a list of text parts or null, got a number");
  CHECK(error_of(row_of(R"({"role": "user", "content": [{"type": "image_url", "image_url": "secret"}]})")) ==
        "messages[0].content[0].type: \"image_url\" is not supported; expected \"text\"");
  CHECK(error_of(row_of(R"({"role": "user", "content": [5]})")) ==
        "messages[0].content[0]: expected text or {\"type\": \"text\", \"text\": ..}, got a number");
  CHECK(error_of(row_of(R"({"role": "user", "content": "a", "tool_calls": [{"name": "f"}]})")) ==
        "messages[0].tool_calls: only messages of the assistant may call tools");
  CHECK(
      error_of(row_of(R"({"role": "assistant", "tool_calls": [{"name": "f", "arguments": "{secret"}]})")) ==
      "messages[0].tool_calls[0].arguments: the text is not valid JSON at column 2: syntax error while parsing object "
      "key - invalid literal");
  CHECK(error_of(row_of(R"({"role": "assistant", "tool_calls": [{"name": "f", "arguments": "[1]"}]})")) ==
        "messages[0].tool_calls[0].arguments: expected an object, or an object as JSON in a string, got a list");
  CHECK(error_of(row_of(R"({"role": "assistant", "tool_calls": [{"function": {"arguments": {}}}]})")) ==
        "messages[0].tool_calls[0].function.name: expected the function's name, got null or nothing");
  CHECK(error_of(row_of(R"({"role": "assistant", "tool_calls": [{"type": "code", "name": "f"}]})")) ==
        "messages[0].tool_calls[0].type: \"code\" is not supported; expected \"function\"");
  CHECK(error_of(row_of(R"({"role": "assistant", "content": "a", "weight": 0.5})")) ==
        "messages[0].weight: expected 0 (not trained) or 1, got 0.5");
  CHECK(error_of(R"({"messages": [{"role": "user", "content": "a"}], "tools": {"a": 1}})") ==
        "tools: expected a list of tools, or such a list as JSON in a string, got an object");
  CHECK(error_of(R"({"messages": [{"role": "user", "content": "a"}], "tools": [1]})") ==
        "tools[0]: expected an object that describes a tool, got a number");
}

TEST_CASE("a long value that should be a role is not quoted") {
  const std::string secret(100, 's');
  CHECK(error_of(row_of(R"({"role": ")" + secret + R"(", "content": "a"})")) ==
        "messages[0].role: a text of 100 bytes is not a role; expected one of system, user, assistant, tool");
}

TEST_CASE("turns with the keys of ShareGPT are told how to become messages") {
  CHECK(contains(error_of(row_of(R"({"from": "human", "value": "q"})")),
                 "messages[0].role: missing; ShareGPT turns: rename \"from\""));
}
