#include "skrull/config/config_docs.h"

#include <sstream>

#include "option_table.h"
#include "skrull/config/config_parser.h"
#include "skrull/core/error.h"

namespace skrull {
namespace {

const TrainConfig defaults;

/// The default as people would write it: `16`, `"auto"`, or a phrase.
std::string default_of(const Option& option) {
  if (option.required_for_training) return "required";
  if (!option.default_note.empty()) return std::string(option.default_note);
  const OrderedJson value = option.value->to_json(defaults);
  return value.is_string() ? value.get<std::string>() : value.dump();
}

std::string type_of(const Option& option) {
  return option.unit.empty() ? option.value->type_name()
                             : fmt::format("{} ({})", option.value->type_name(), option.unit);
}

/// `option.help` with its choices and aliases spelled out, each choice behind `before_choice`.
std::string full_help(const Option& option, std::string_view before_choice = " ") {
  std::string text = std::string(option.help) + ".";
  if (const ChoiceNames* choices = option.value->choices()) {
    for (std::size_t i = 0; i < choices->names.size(); ++i) {
      text += fmt::format("{}`{}`: {}.", before_choice, choices->names[i], choices->helps[i]);
    }
  }
  for (const std::string_view alias : option.aliases) text += fmt::format(" Also accepted as `{}`.", alias);
  if (option.fixed_on_resume) text += " A run can't be resumed under another value.";
  return text;
}

/// Words of `text` in lines of at most `width` columns; the first line is indented by `first_indent` spaces.
std::string wrapped(const std::string& text, std::size_t first_indent, std::size_t indent, std::size_t width) {
  std::string lines;
  std::string line(first_indent, ' ');
  bool is_empty = true;
  std::istringstream words(text);
  for (std::string word; words >> word; is_empty = false) {
    if (!is_empty && line.size() + 1 + word.size() > width) {
      lines += line + "\n";
      line.assign(indent, ' ');
      is_empty = true;
    }
    line += (is_empty ? "" : " ") + word;
  }
  return lines + line + "\n";
}

/// Calls begin_group(title) before the first option of each group, and on_option(option) for each option.
template <class BeginGroup, class OnOption>
void for_each_option(const BeginGroup& begin_group, const OnOption& on_option) {
  const OptionGroup* group = nullptr;
  for (const Option& option : option_table()) {
    if (group == nullptr || *group != option.group) begin_group(title_of(option.group));
    group = &option.group;
    on_option(option);
  }
}

OrderedJson schema_of(const Option& option) {
  OrderedJson schema = option.value->schema();
  if (!option.required_for_training) {
    if (option.value->null_is_empty()) schema = {{"anyOf", {schema, {{"type", "null"}}}}};
    schema["default"] = option.value->to_json(defaults);
  }
  schema["description"] = full_help(option);
  return schema;
}

/// /scheduler/policy -> /properties/scheduler/properties/policy; makes the objects on the way.
OrderedJson& schema_place(OrderedJson& schema, std::string_view name) {
  const auto dot = name.find('.');
  OrderedJson& child = schema["properties"][std::string(name.substr(0, dot))];
  if (dot == std::string_view::npos) return child;
  if (child.is_null()) child = {{"type", "object"}, {"additionalProperties", false}};
  return schema_place(child, name.substr(dot + 1));
}

constexpr std::string_view preamble = R"(# Configuration

<!-- Made by `skrull config --markdown` from the option table; do not edit. -->

A run is described by a JSON file and, optionally, overrides on the command line:

```
skrull train CONFIG.json [key=value ...] [--key value ...]
```

**In the file** an option is a key of the top-level object. A dot in a name stands for a nested object: `scheduler.policy`
is written `{"scheduler": {"policy": "packed"}}`. `configs/minimal.json` is the shortest file there is. The file is plain
JSON: no comments, no trailing commas, no key twice. `null` stands for "not given" where the default below is a phrase and
not a value. A `"$schema"` key is ignored, so that editors can check the file as you type: `skrull config --schema` prints
the JSON Schema (draft 2020-12).

**On the command line** write the dotted name: `key=value`, `--key=value` or `--key value`, in any order. The last one
wins, and all of them win over the file. A switch needs no value: `--overwrite_output_dir` means true,
`--no_overwrite_output_dir` false. Lists are separated by commas (`dataset=a.jsonl,b.jsonl`) or written as JSON
(`'dataset=["a,b.jsonl"]'`). `--learning-rate` is the same as `--learning_rate`.

Relative paths are taken from the working directory.

**Mistakes are reported all at once**, each with its file (or "command line") and key: unknown keys with the nearest known
one, wrong types, values out of range, options that contradict each other, and what is missing. The exit code is 0 when the
run is done, 1 when it failed, and 2 when the config or the data is wrong.

The resolved config, with every default, is written to `args.json` in `output_dir`. It is a config file itself:
`skrull train args.json` runs the same again (into another `output_dir`, or with `overwrite_output_dir`).
)";

std::string markdown_row(const Option& option) {
  const bool default_is_a_phrase = option.required_for_training || !option.default_note.empty();
  const std::string allowed = option.value->allowed();
  return fmt::format("| `{}` | {} | {} | {} | {} |\n", option.name, type_of(option),
                     default_is_a_phrase ? default_of(option) : fmt::format("`{}`", default_of(option)),
                     allowed.empty() ? "any" : allowed, full_help(option, "<br>"));
}

}  // namespace

std::string config_to_json(const TrainConfig& config) {
  OrderedJson json = OrderedJson::object();
  for (const Option& option : option_table()) json[pointer_to(option.name)] = option.value->to_json(config);
  return json.dump(2) + "\n";
}

std::string config_help(std::size_t width) {
  std::string text;
  const auto add_option = [&](const Option& option) {
    const std::string fallback = option.required_for_training ? "required" : "default " + default_of(option);
    text += wrapped(fmt::format("{}: {}, {}", option.name, type_of(option), fallback), 2, 6, width);
    const std::string allowed = option.value->choices() == nullptr ? option.value->allowed() : "";
    text += wrapped(full_help(option) + (allowed.empty() ? "" : " Allowed: " + allowed + "."), 6, 6, width);
  };
  for_each_option([&](std::string_view title) { text += fmt::format("\n{}:\n", title); }, add_option);
  return text.substr(1);
}

std::string config_schema() {
  OrderedJson schema = {{"$schema", "https://json-schema.org/draft/2020-12/schema"},
                        {"title", "Skrull training config"},
                        {"type", "object"},
                        {"additionalProperties", false},
                        {"required", required_for_training()},
                        {"properties", {{"$schema", {{"type", "string"}}}}}};
  for (const Option& option : option_table()) {
    schema_place(schema, option.name) = schema_of(option);
    for (const std::string_view alias : option.aliases) {
      const OrderedJson same = {{"$ref", "#/properties/" + std::string(option.name)}};
      schema_place(schema, alias) = same;
    }
  }
  return schema.dump(2) + "\n";
}

std::string config_markdown() {
  std::string text(preamble);
  for_each_option(
      [&](std::string_view title) {
        text += fmt::format(
            "\n## {}\n\n| key | type | default | allowed | meaning |\n| --- | --- | --- | --- | --- |\n", title);
      },
      [&](const Option& option) { text += markdown_row(option); });
  return text;
}

}  // namespace skrull
