#include "skrull/data/chat_template.h"

#include <sstream>
#include <string>
#include <vector>

#include "data/errors.h"
#include "data/tiny_tokenizer.h"
#include "skrull/core/json.h"
#include "skrull/data/text_commands.h"
#include "support/catch.h"
#include "support/support.h"

using namespace skrull;
using test::contains;

namespace {

using Ids = std::vector<std::int32_t>;

struct Model {
  test::TemporaryFolder folder;
  Tokenizer tokenizer = make();
  ChatTemplate chat_template = ChatTemplate::load(folder.path(), tokenizer);

 private:
  Tokenizer make() {
    test::write_tiny_tokenizer(folder.path());
    return Tokenizer::load(folder.path());
  }
};

RenderedConversation tokenize(const Model& model, const std::string& row, bool add_generation_prompt = false) {
  return model.chat_template.tokenize(parse_conversation(parse_row(row)), add_generation_prompt);
}

/// The text of the trained tokens, "|" between stretches of them.
std::string trained_text(const Model& model, const RenderedConversation& rendered) {
  REQUIRE(rendered.labels.size() == rendered.ids.size());
  std::string text;
  for (std::size_t i = 0; i < rendered.ids.size(); ++i) {
    if (rendered.labels[i] == ignored_label) {
      if (!text.empty() && text.back() != '|') text += '|';
      continue;
    }
    REQUIRE(rendered.labels[i] == rendered.ids[i]);
    text += model.tokenizer.token_bytes(rendered.ids[i]);
  }
  return text;
}

std::string render_as_jinja(const Model& model, const std::string& row, bool add_generation_prompt = false) {
  return model.chat_template.render(read_conversation_as_jinja(parse_row(row)), add_generation_prompt);
}

constexpr const char* chat = R"({"messages": [
    {"role": "user", "content": "hello"}, {"role": "assistant", "content": "hell or hello"},
    {"role": "user", "content": "or?"}, {"role": "assistant", "content": ""}]})";

}  // namespace

TEST_CASE("a chat: text, ids and labels") {
  const Model model;
  CHECK(model.chat_template.default_system() == "You are a helpful assistant.");
  CHECK(model.chat_template.end_of_turn() == test::tiny_im_end);
  const RenderedConversation rendered = tokenize(model, chat);
  CHECK(rendered.text ==
        "<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n<|im_start|>user\nhello<|im_end|>\n"
        "<|im_start|>assistant\nhell or hello<|im_end|>\n<|im_start|>user\nor?<|im_end|>\n"
        "<|im_start|>assistant\n<|im_end|>\n");
  CHECK(rendered.ids == model.tokenizer.encode(rendered.text, AddedTokens::recognize));
  CHECK(trained_text(model, rendered) == "hell or hello<|im_end|>|<|im_end|>|");
}

TEST_CASE("the generation prompt is not trained") {
  const Model model;
  const std::string text = R"({"messages": [{"role": "system", "content": "s"}, {"role": "user", "content": "u"}]})";
  const RenderedConversation rendered = tokenize(model, text, true);
  CHECK(rendered.text == "<|im_start|>system\ns<|im_end|>\n<|im_start|>user\nu<|im_end|>\n<|im_start|>assistant\n");
  CHECK(Ids(rendered.ids.end() - 2, rendered.ids.end()) == Ids{'t', '\n'});
  CHECK(trained_text(model, rendered).empty());
}

TEST_CASE("content never becomes a control token") {
  const Model model;
  const std::string row = R"({"messages": [{"role": "user", "content": "<|im_end|>"},
      {"role": "assistant", "content": "a<|im_start|>b", "tool_calls": [{"name": "f", "arguments": {"x": "<tool_call>"}}]}],
      "tools": [{"name": "<|im_end|>"}]})";
  const RenderedConversation rendered = tokenize(model, row);
  std::vector<std::int32_t> controls;
  for (const std::int32_t id : rendered.ids) {
    if (id >= test::tiny_im_start) controls.push_back(id);
  }
  const std::int32_t start = test::tiny_im_start, end = test::tiny_im_end;
  const std::int32_t call = test::tiny_tool_call, call_end = test::tiny_tool_call_end;
  // System turn with the tools' instructions, which name the tags twice; user; assistant with one call.
  CHECK(controls == Ids{start, call, call_end, call, call_end, end, start, end, start, call, call_end, end});
  CHECK(model.tokenizer.decode(rendered.ids) == rendered.text);
  CHECK(trained_text(model, rendered) ==
        "a<|im_start|>b\n<tool_call>\n{\"name\": \"f\", \"arguments\": {\"x\": "
        "\"<tool_call>\"}}\n</tool_call><|im_end|>|");
  const RenderedConversation let_through =
      model.chat_template.tokenize(parse_conversation(parse_row(row)), false, AddedTokens::recognize);
  CHECK(let_through.ids == model.tokenizer.encode(rendered.text, AddedTokens::recognize));
  CHECK(let_through.text == rendered.text);
  CHECK(trained_text(model, let_through) == trained_text(model, rendered));
}

TEST_CASE("a token in which header and content grew together is trained") {
  const Model model;
  const RenderedConversation rendered = tokenize(
      model, R"({"messages": [{"role": "user", "content": "\n\n"}, {"role": "assistant", "content": "\nhello"}]})");
  CHECK(rendered.ids == model.tokenizer.encode(rendered.text, AddedTokens::recognize));
  // "assistant" + "\n\n" + "hello": the second token holds the header's newline and the content's.
  CHECK(trained_text(model, rendered) == "\n\nhello<|im_end|>|");
}

TEST_CASE("content that NFC shortens does not move the labels") {
  const Model model;
  const RenderedConversation rendered = tokenize(
      model,
      R"({"messages": [{"role": "user", "content": "e\u0301"}, {"role": "assistant", "content": "e\u0301\u0301x"}]})");
  CHECK(trained_text(model, rendered) == "\u00E9\u0301x<|im_end|>|");
}

TEST_CASE("messages with weight 0 are not trained") {
  const Model model;
  const RenderedConversation rendered = tokenize(model, R"({"messages": [{"role": "user", "content": "u"},
      {"role": "assistant", "content": "bad", "weight": 0}, {"role": "assistant", "content": "good"}]})");
  CHECK(trained_text(model, rendered) == "good<|im_end|>|");
}

TEST_CASE("tool calls and responses") {
  const Model model;
  const RenderedConversation rendered = tokenize(model, R"({"messages": [{"role": "user", "content": "u"},
      {"role": "assistant", "content": null, "tool_calls": [{"type": "function", "function": {"name": "f", "arguments": "{\"a\":1}"}},
        {"name": "g", "arguments": {}}]},
      {"role": "tool", "content": "r1"}, {"role": "tool", "content": "r2"}, {"role": "assistant", "content": "done"}]})");
  CHECK(rendered.text ==
        "<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n<|im_start|>user\nu<|im_end|>\n"
        "<|im_start|>assistant\n<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": 1}}\n</tool_call>\n"
        "<tool_call>\n{\"name\": \"g\", \"arguments\": {}}\n</tool_call><|im_end|>\n"
        "<|im_start|>user\n<tool_response>\nr1\n</tool_response>\n<tool_response>\nr2\n</tool_response><|im_end|>\n"
        "<|im_start|>assistant\ndone<|im_end|>\n");
  CHECK(rendered.ids == model.tokenizer.encode(rendered.text, AddedTokens::recognize));
  CHECK(trained_text(model, rendered) ==
        "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": 1}}\n</tool_call>\n"
        "<tool_call>\n{\"name\": \"g\", \"arguments\": {}}\n</tool_call><|im_end|>|done<|im_end|>|");
}

TEST_CASE("without validation rows print as Jinja prints them") {
  // Expected texts are those of Jinja2 3.1 with Qwen2.5's template.
  const Model model;
  const std::string system = "<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n";
  CHECK(render_as_jinja(
            model, R"({"messages": [{"role": "human", "content": "x"}, {"content": "y"}, 5, null, "z"]})") == system);
  CHECK(render_as_jinja(
            model,
            R"({"messages": [{"role": "tool", "content": {"a": [null, true, 1.0, "it's"]}}, {"role": "tool"}]})") ==
        system +
            "<|im_start|>user\n<tool_response>\n{'a': [None, True, 1.0, \"it's\"]}\n</tool_response>\n"
            "<tool_response>\n\n</tool_response><|im_end|>\n");
  CHECK(render_as_jinja(model, R"({"messages": [{"role": "assistant", "content": null, "tool_calls": [
            {"name": 5, "arguments": "{\"a\": 1}"}, {"function": {"arguments": null}}]}]})") ==
        system +
            "<|im_start|>assistant\n<tool_call>\n{\"name\": \"5\", \"arguments\": \"{\\\"a\\\": 1}\"}\n</tool_call>\n"
            "<tool_call>\n{\"name\": \"\", \"arguments\": null}\n</tool_call><|im_end|>\n");
  CHECK(contains(render_as_jinja(model, R"({"messages": [{"role": "system", "content": null}], "tools": [1]})"),
                 "<|im_start|>system\nNone\n\n# Tools"));
  CHECK(contains(render_as_jinja(model, R"({"messages": ["x"], "tools": {"k": 1, "l": 2}})"),
                 "<tools>\n\"k\"\n\"l\"\n</tools>"));
  CHECK(contains(render_as_jinja(model, R"({"messages": ["x"], "tools": "a\u00e9"})"),
                 "<tools>\n\"a\"\n\"\u00E9\"\n</tools>"));
  const std::vector<std::pair<const char*, const char*>> failures{
      {R"({"messages": []})", "messages: "},
      {R"({"text": ""})", "messages: "},
      {R"({"messages": [{"role": "user", "content": null}]})", "messages[0].content"},
      {R"({"messages": [{"role": "user"}]})", "messages[0].content"},
      {R"({"messages": [{"role": "system", "content": ["a"]}]})", "messages[0].content"},
      {R"({"messages": [{"role": "assistant", "content": 5, "tool_calls": [{"name": "f", "arguments": {}}]}]})",
       "messages[0].content"},
      {R"({"messages": [{"role": "assistant", "content": "", "tool_calls": [{"name": "f"}]}]})",
       "messages[0].tool_calls[0].arguments"},
      {R"({"messages": [{"role": "assistant", "content": "", "tool_calls": "f"}]})", "messages[0].tool_calls"}};
  for (const auto& [row, field] : failures) {
    CHECK(test::invalid_input_of([&, line = row] { render_as_jinja(model, line); }).starts_with(field));
  }
}

TEST_CASE("a folder with an unknown template, or a tokenizer without control tokens") {
  const test::TemporaryFolder folder;
  test::write_tiny_tokenizer(folder.path());
  const Tokenizer tokenizer = Tokenizer::load(folder.path());
  const auto load_error = [&] { return test::invalid_input_of([&] { ChatTemplate::load(folder.path(), tokenizer); }); };
  write_json_file(folder / "tokenizer_config.json", {{"chat_template", "{{ messages }}"}});
  CHECK(contains(load_error(), "tokenizer_config.json: this chat template is not known; known is Qwen2.5's"));
  write_json_file(folder / "tokenizer_config.json", {{"chat_template", 5}});
  CHECK(contains(load_error(), "tokenizer_config.json: chat_template: expected text"));
  write_json_file(folder / "tokenizer_config.json", {{"chat_template", nullptr}});
  CHECK(ChatTemplate::load(folder.path(), tokenizer).default_system() == "You are a helpful assistant.");
  write_file_atomically(folder / "chat_template.jinja", "{{ messages }}");
  CHECK(contains(load_error(), "chat_template.jinja: this chat template is not known"));

  const test::TemporaryFolder plain;
  Json json = test::tiny_tokenizer_json();
  json["added_tokens"].erase(0);
  write_json_file(plain / "tokenizer.json", json);
  const std::string message =
      test::invalid_input_of([&] { ChatTemplate::load(plain.path(), Tokenizer::load(plain.path())); });
  CHECK(contains(message, "no added token <|im_start|>"));
}

TEST_CASE("the lines of skrull tokenize") {
  const Model model;
  std::istringstream input("\xEF\xBB\xBF{\"text\": \"hello<|im_end|>\"}\r\n\n{\"text\": \"\"}");
  std::ostringstream output;
  tokenize_lines(model.tokenizer, AddedTokens::recognize, input, output);
  CHECK(output.str() == "{\"ids\": [259, 301]}\n{\"ids\": []}\n");
  std::istringstream again("{\"text\": \"<|im_end|>\"}");
  std::ostringstream plain;
  tokenize_lines(model.tokenizer, AddedTokens::plain, again, plain);
  CHECK(Json::parse(plain.str())["ids"].size() == 10);
  const auto error_of = [&](const std::string& lines) {
    std::istringstream bad(lines);
    std::ostringstream ignored;
    return test::invalid_input_of([&] { tokenize_lines(model.tokenizer, AddedTokens::plain, bad, ignored); });
  };
  CHECK(error_of("\n{\"text\": \"a\"}\n{\"text\": 5}\n") == "<stdin>:3: text: expected {\"text\": \"...\"}");
  CHECK(error_of("[]") == "<stdin>:1: text: expected {\"text\": \"...\"}");
  CHECK(contains(error_of("{\"text\": \"\xFF\"}"), "<stdin>:1: not valid JSON at column 11"));
}

TEST_CASE("the lines of skrull render") {
  const Model model;
  const std::string row =
      R"({"messages": [{"role": "user", "content": null}, {"role": "assistant", "content": "hello\t\u0000"}]})";
  std::istringstream input(row + "\n");
  std::ostringstream output;
  render_lines(model.chat_template, {.add_generation_prompt = true, .raw = false}, input, output);
  const Json rendered = Json::parse(output.str());
  const RenderedConversation expected = tokenize(model, row, true);
  CHECK(rendered["text"] == expected.text);
  CHECK(rendered["ids"] == expected.ids);
  CHECK(rendered["labels"] == expected.labels);
  CHECK(rendered.size() == 3);

  std::istringstream raw(row + "\n");
  std::ostringstream ignored;
  CHECK(test::invalid_input_of([&] {
          render_lines(model.chat_template, {.raw = true}, raw, ignored);
        }).starts_with("<stdin>:1: messages[0].content"));
  std::istringstream bad(
      "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}]}\n{\"messages\": [{\"role\": \"gpt\"}]}");
  std::ostringstream first_line;
  CHECK(test::invalid_input_of([&] {
          render_lines(model.chat_template, {}, bad, first_line);
        }).starts_with("<stdin>:2: messages[0].role: \"gpt\""));
  CHECK(contains(first_line.str(), "\"labels\""));
}
