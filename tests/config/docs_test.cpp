#include <algorithm>
#include <cmath>
#include <set>

#include "config_test_support.h"
#include "option_table.h"
#include "skrull/config/config_docs.h"
#include "skrull/core/json.h"

using namespace skrull;

namespace {

/// Dotted names of all properties of a schema, those of nested objects included.
std::set<std::string> names_in(const OrderedJson& schema, const std::string& prefix = "") {
  std::set<std::string> names;
  for (const auto& [key, property] : schema["properties"].items()) {
    if (property.contains("properties")) {
      names.merge(names_in(property, prefix + key + "."));
    } else {
      names.insert(prefix + key);
    }
  }
  return names;
}

std::set<std::string> names_in_table() {
  std::set<std::string> names;
  for (const Option& option : option_table()) {
    names.emplace(option.name);
    names.insert(option.aliases.begin(), option.aliases.end());
  }
  return names;
}

/// The part of JSON Schema that config_schema() uses.
bool accepts(const OrderedJson& schema, const OrderedJson& value) {
  if (schema.contains("anyOf")) {
    return std::any_of(schema["anyOf"].begin(), schema["anyOf"].end(),
                       [&](const auto& one) { return accepts(one, value); });
  }
  if (schema.contains("enum")) return std::count(schema["enum"].begin(), schema["enum"].end(), value) == 1;
  if (schema.contains("const")) return schema["const"] == value;
  const std::string type = schema["type"];
  if (type == "null") return value.is_null();
  if (type == "boolean") return value.is_boolean();
  if (type == "string") return value.is_string() && value.get<std::string>().size() >= schema["minLength"];
  if (type == "array") {
    return value.is_array() && std::all_of(value.begin(), value.end(),
                                           [&](const auto& element) { return accepts(schema["items"], element); });
  }
  if (!value.is_number()) return false;
  const double number = value;
  if (type == "integer" && number != std::floor(number)) return false;
  const auto bound = [&](const char* name, double otherwise) { return schema.value(name, otherwise); };
  return number >= bound("minimum", number) && number <= bound("maximum", number) &&
         number > bound("exclusiveMinimum", number - 1) && number < bound("exclusiveMaximum", number + 1);
}

}  // namespace

TEST_CASE("the option table is well formed") {
  std::set<std::string_view> names;
  for (const Option& option : option_table()) {
    INFO(option.name);
    CHECK(names.insert(option.name).second);
    for (const auto alias : option.aliases) CHECK(names.insert(alias).second);
    CHECK(!option.help.empty());
    CHECK(option.help.back() != '.');
    CHECK(find_option(option.name) == &option);
    if (option.required_for_training) continue;
    const OrderedJson value = option.value->to_json(TrainConfig{});
    const bool default_says_nothing = value.is_null() || value == OrderedJson::array();
    CHECK(default_says_nothing == !option.default_note.empty());
  }
  for (const Option& option : option_table()) {
    for (const auto foreign : option.known_elsewhere) {
      INFO(foreign);
      CHECK(names.insert(foreign).second);
    }
  }
}

TEST_CASE("docs/configuration.md is what the table says") {
  const auto committed = std::filesystem::path(SKRULL_SOURCE_DIR) / "docs" / "configuration.md";
  INFO("bring it up to date with: skrull config --markdown > docs/configuration.md");
  CHECK(read_file(committed) == config_markdown());
}

TEST_CASE("the schema has exactly the table's keys, and its defaults satisfy it") {
  const auto schema = OrderedJson::parse(config_schema());
  auto expected = names_in_table();
  expected.emplace("$schema");
  CHECK(names_in(schema) == expected);
  CHECK(schema["additionalProperties"] == false);
  CHECK(schema["properties"]["scheduler"]["additionalProperties"] == false);
  CHECK(schema["required"] == OrderedJson(required_for_training()));
  CHECK(schema["properties"]["max_length"]["$ref"] == "#/properties/cutoff_len");
  for (const Option& option : option_table()) {
    INFO(option.name);
    const OrderedJson of_option = option.value->schema();
    CHECK(of_option.is_object());
    if (option.required_for_training) continue;
    const OrderedJson value = option.value->to_json(TrainConfig{});
    CHECK((value.is_null() || accepts(of_option, value)));
  }
}

TEST_CASE("schema and parser accept and refuse the same values") {
  const auto candidates =
      OrderedJson::parse(R"([null, true, false, -2, -1, 0, 1, 2, 3.0, 0.0, 0.5, 1.5, 1e-9, 1e20, "", "auto",
    "x", "none", "full", "float32", "cosine", "packed", [], ["a"], [""], [1], {}])");
  const auto schema = OrderedJson::parse(config_schema());
  int refused = 0;
  for (const Option& option : option_table()) {
    OrderedJson of_option = schema;
    std::string_view rest = option.name;
    for (auto dot = rest.find('.'); dot != std::string_view::npos; dot = rest.find('.')) {
      of_option = OrderedJson(of_option["properties"][std::string(rest.substr(0, dot))]);
      rest.remove_prefix(dot + 1);
    }
    of_option = OrderedJson(of_option["properties"][std::string(rest)]);
    for (const auto& value : candidates) {
      INFO(option.name << " = " << value.dump());
      // On purpose: val_size 3.0 looks like a fraction, 1e20 is not exact in 64 bits, and null for a required option is
      // found missing later.
      const bool is_missing = value.is_null() && option.required_for_training;
      if ((option.name == "val_size" && value == 3.0) || value == 1e20 || is_missing) continue;
      TrainConfig config;
      const bool parsed = option.value->assign(value, config, [](const auto&, const auto&) {});
      CHECK(parsed == accepts(of_option, value));
      refused += parsed ? 0 : 1;
    }
  }
  CHECK(refused > 500);
}

TEST_CASE("the help lists every option with type, default and choices") {
  const std::string help = config_help(80);
  for (const Option& option : option_table()) {
    INFO(option.name);
    CHECK(help.find("\n  " + std::string(option.name) + ": ") != std::string::npos);
  }
  CHECK(help.find("  cutoff_len: integer (tokens), default 32768\n") != std::string::npos);
  CHECK(help.find("  output_dir: path, required\n") != std::string::npos);
  CHECK(help.find("  bucket_tokens: integer (tokens), default auto\n") != std::string::npos);
  std::size_t begin = 0;
  std::size_t longest = 0;
  for (std::size_t end = help.find('\n'); end != std::string::npos; end = help.find('\n', begin)) {
    longest = std::max(longest, end - begin);
    begin = end + 1;
  }
  CHECK(longest <= 80);
}
