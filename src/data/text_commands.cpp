#include "skrull/data/text_commands.h"

#include <istream>
#include <iterator>
#include <ostream>
#include <span>
#include <string>

#include "skrull/core/error.h"
#include "skrull/core/json.h"

namespace skrull {
namespace {

/// Calls `convert(row)` for each line and writes the line that it returns.
template <class Convert>
void convert_lines(std::istream& input, std::ostream& output, Convert&& convert) {
  constexpr std::string_view byte_order_mark = "\xEF\xBB\xBF";
  std::int64_t number = 0;
  for (std::string line; std::getline(input, line);) {
    ++number;
    if (number == 1 && line.starts_with(byte_order_mark)) line.erase(0, byte_order_mark.size());
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    try {
      output << convert(parse_row(line)) << '\n' << std::flush;
    } catch (const InvalidInput& error) {
      throw_invalid_input("<stdin>:{}: {}", number, error.what());
    }
    require(output.good(), "can't write the output for line {}", number);
  }
}

void append_ids(std::string_view name, std::span<const std::int32_t> ids, std::string& json) {
  fmt::format_to(std::back_inserter(json), "\"{}\": [{}]", name, fmt::join(ids, ", "));
}

}  // namespace

void tokenize_lines(const Tokenizer& tokenizer, AddedTokens added_tokens, std::istream& input, std::ostream& output) {
  convert_lines(input, output, [&](const OrderedJson& row) {
    const auto text = row.find("text");
    if (text == row.end() || !text->is_string()) throw_invalid_input("text: expected {{\"text\": \"...\"}}");
    std::string json = "{";
    append_ids("ids", tokenizer.encode(text->get_ref<const std::string&>(), added_tokens), json);
    return json += '}';
  });
}

void render_lines(const ChatTemplate& chat_template, RenderOptions options, std::istream& input, std::ostream& output) {
  convert_lines(input, output, [&](OrderedJson row) {
    if (!options.raw) apply_system(row);
    const Conversation conversation = options.raw ? read_conversation_as_jinja(row) : parse_conversation(row);
    const RenderedConversation rendered = chat_template.tokenize(
        conversation, options.add_generation_prompt, options.raw ? AddedTokens::recognize : AddedTokens::plain);
    std::string json = "{\"text\": " + OrderedJson(rendered.text).dump() + ", ";
    append_ids("ids", rendered.ids, json);
    json += ", ";
    append_ids("labels", rendered.labels, json);
    return json += '}';
  });
}

}  // namespace skrull
