#include "chat_template_source.h"

#include <optional>

#include "skrull/core/checksum.h"
#include "skrull/core/error.h"
#include "skrull/core/file.h"
#include "skrull/core/json.h"

namespace skrull {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view base_system = "You are a helpful assistant.";

/// Checksum of Qwen2.5's template with its two copies of the default system text taken out and no white space at the
/// end.
constexpr std::string_view qwen25_checksum = "4da748170a815478eabb709d63012ada";

struct Source {
  fs::path file;
  std::string text;
};

/// "chat_template" of tokenizer_config.json: text, or a list of named templates of which "default" counts.
std::optional<std::string> read_configured(const fs::path& file) {
  const Json config = read_json_file(file);
  const auto found = config.find("chat_template");
  if (found == config.end() || found->is_null()) return std::nullopt;
  if (found->is_string()) return found->get<std::string>();
  if (found->is_array()) {
    for (const Json& named : *found) {
      if (named.is_object() && named.value("name", Json()) == "default" &&
          named.value("template", Json()).is_string()) {
        return named["template"].get<std::string>();
      }
    }
  }
  throw_invalid_input("{}: chat_template: expected text, or a list with a template named \"default\"", file.string());
}

std::optional<Source> find_source(const fs::path& folder) {
  const fs::path jinja = folder / "chat_template.jinja";
  if (fs::exists(jinja)) return Source{jinja, read_file(jinja)};
  const fs::path config = folder / "tokenizer_config.json";
  if (!fs::exists(config)) return std::nullopt;
  std::optional<std::string> text = read_configured(config);
  if (!text) return std::nullopt;
  return Source{config, std::move(*text)};
}

/// Cuts out what stands between the first `before` that is not followed by `not_followed_by` and the next `after`.
std::optional<std::string> cut_between(std::string& text, std::string_view before, char not_followed_by,
                                       std::string_view after) {
  std::size_t begin = text.find(before);
  while (begin != std::string::npos && text[begin + before.size()] == not_followed_by) {
    begin = text.find(before, begin + 1);
  }
  if (begin == std::string::npos) return std::nullopt;
  begin += before.size();
  const std::size_t end = text.find(after, begin);
  if (end == std::string::npos) return std::nullopt;
  std::string cut = text.substr(begin, end - begin);
  text.erase(begin, end - begin);
  return cut;
}

/// What a string literal of Jinja means; nothing for escapes other than the usual ones.
std::optional<std::string> unescape(std::string_view literal) {
  std::string text;
  for (std::size_t i = 0; i < literal.size(); ++i) {
    if (literal[i] != '\\') {
      text += literal[i];
      continue;
    }
    if (++i == literal.size()) return std::nullopt;
    switch (literal[i]) {
      case 'n':
        text += '\n';
        break;
      case 't':
        text += '\t';
        break;
      case '\\':
      case '\'':
      case '"':
        text += literal[i];
        break;
      default:
        return std::nullopt;
    }
  }
  return text;
}

/// The default system text when `text` is Qwen2.5's template.
std::optional<std::string> qwen25_default_system(std::string text) {
  // The system text stands alone where there are tools, and inside a whole turn where there are none.
  const std::optional<std::string> in_turn = cut_between(text, R"('<|im_start|>system\n)", '\'', "<|im_end|>");
  const std::optional<std::string> alone = cut_between(text, "{%- else %}\n        {{- '", '\0', "' }}");
  if (!in_turn || !alone || *in_turn != *alone) return std::nullopt;
  text.erase(text.find_last_not_of(" \t\r\n") + 1);
  Checksum checksum;
  checksum.add(text.data(), text.size());
  if (checksum.hex() != qwen25_checksum) return std::nullopt;
  return unescape(*alone);
}

}  // namespace

std::string read_default_system(const fs::path& folder) {
  const std::optional<Source> source = find_source(folder);
  if (!source) return std::string(base_system);
  if (std::optional<std::string> system = qwen25_default_system(source->text)) return *system;
  throw_invalid_input(
      "{}: this chat template is not known; known is Qwen2.5's, with any default system text. Put the template of a "
      "Qwen2.5 model into the folder, or train on rows of input_ids",
      source->file.string());
}

}  // namespace skrull
