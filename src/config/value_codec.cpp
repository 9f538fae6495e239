#include "value_codec.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "skrull/core/text.h"

namespace skrull {
namespace {

/// Command-line text as a JSON number, or as a string when it is none (read() then reports what it expected).
OrderedJson number_from_text(std::string_view text) {
  const char* const end = text.data() + text.size();
  std::int64_t integer = 0;
  if (const auto parsed = std::from_chars(text.data(), end, integer); parsed.ec == std::errc() && parsed.ptr == end) {
    return integer;
  }
  double number = 0.0;
  if (const auto parsed = std::from_chars(text.data(), end, number); parsed.ec == std::errc() && parsed.ptr == end) {
    return std::isfinite(number) ? OrderedJson(number) : OrderedJson(std::string(text));
  }
  return std::string(text);
}

/// "true" and "false" in any case, and 1 and 0, as JSON booleans; other text as a string.
OrderedJson boolean_from_text(std::string_view text) {
  std::string lower(text);
  std::transform(lower.begin(), lower.end(), lower.begin(), [](char c) { return c >= 'A' && c <= 'Z' ? c + 32 : c; });
  if (lower == "true" || lower == "1") return true;
  if (lower == "false" || lower == "0") return false;
  return std::string(text);
}

void report_wrong_type(const ProblemSink& problems, std::string_view expected, const OrderedJson& seen) {
  problems("", fmt::format("expected {}, got {}", expected, describe_json(seen)));
}

template <class T>
bool check_range(const Range<T>& range, T value, const std::string& allowed, const ProblemSink& problems) {
  if (range.contains(value)) return true;
  problems("", fmt::format("must be {}, got {}", allowed, value));
  return false;
}

template <class T>
OrderedJson schema_of_range(std::string_view type, const Range<T>& range) {
  OrderedJson schema = {{"type", type}};
  if (range.lower) schema[range.lower_open ? "exclusiveMinimum" : "minimum"] = *range.lower;
  if (range.upper) schema[range.upper_open ? "exclusiveMaximum" : "maximum"] = *range.upper;
  return schema;
}

/// The whole number that `json` holds, if it is one and 64 bits hold it.
std::optional<std::int64_t> whole_number(const OrderedJson& json) {
  constexpr double largest_exact = 9007199254740992.0;  // 2^53
  if (json.is_number_unsigned() && json.get<std::uint64_t>() > static_cast<std::uint64_t>(INT64_MAX)) return {};
  if (json.is_number_integer()) return json.get<std::int64_t>();
  if (!json.is_number_float()) return {};
  const auto value = json.get<double>();
  if (value != std::floor(value) || std::abs(value) > largest_exact) return {};
  return static_cast<std::int64_t>(value);
}

std::optional<std::filesystem::path> read_path(const OrderedJson& json, const std::string& place,
                                               const ProblemSink& problems) {
  if (!json.is_string()) {
    problems(place, "expected a path (a string), got " + describe_json(json));
    return {};
  }
  const auto& text = json.get_ref<const std::string&>();
  const char* const fault = text.empty()                                        ? "is empty"
                            : text.find('\0') != std::string::npos              ? "holds a zero byte"
                            : find_invalid_utf8(text) != std::string_view::npos ? "is not valid UTF-8"
                                                                                : nullptr;
  if (fault != nullptr) {
    problems(place, fmt::format("the path {}", fault));
    return {};
  }
  return text;
}

}  // namespace

template <class T>
std::string Range<T>::describe() const {
  std::string text;
  if (lower) text = fmt::format("{} {}", lower_open ? "greater than" : "at least", *lower);
  if (lower && upper) text += " and ";
  if (upper) text += fmt::format("{} {}", upper_open ? "less than" : "at most", *upper);
  return text;
}
template struct Range<std::int64_t>;
template struct Range<double>;

std::optional<std::int64_t> IntegerCodec::read(const OrderedJson& json, const ProblemSink& problems) const {
  const auto value = whole_number(json);
  if (!value) {
    report_wrong_type(problems, json.is_number() ? "a whole number of at most 64 bits" : "an integer", json);
    return {};
  }
  if (value == also_) return value;
  return check_range(range_, *value, allowed(), problems) ? value : std::nullopt;
}

OrderedJson IntegerCodec::from_text(std::string_view text) const {
  return number_from_text(text);
}

OrderedJson IntegerCodec::schema() const {
  OrderedJson schema = schema_of_range("integer", range_);
  if (also_) schema = {{"anyOf", {schema, {{"const", *also_}}}}};
  return schema;
}

std::string IntegerCodec::allowed() const {
  return also_ ? fmt::format("{}, or {}", range_.describe(), *also_) : range_.describe();
}

std::optional<double> NumberCodec::read(const OrderedJson& json, const ProblemSink& problems) const {
  if (!json.is_number()) {
    report_wrong_type(problems, "a number", json);
    return {};
  }
  const auto value = json.get<double>();
  return check_range(range_, value, allowed(), problems) ? std::optional(value) : std::nullopt;
}

OrderedJson NumberCodec::from_text(std::string_view text) const {
  return number_from_text(text);
}
OrderedJson NumberCodec::schema() const {
  return schema_of_range("number", range_);
}

std::optional<bool> BooleanCodec::read(const OrderedJson& json, const ProblemSink& problems) const {
  if (json.is_boolean()) return json.get<bool>();
  report_wrong_type(problems, "true or false", json);
  return {};
}

OrderedJson BooleanCodec::from_text(std::string_view text) const {
  return boolean_from_text(text);
}

std::optional<std::filesystem::path> PathCodec::read(const OrderedJson& json, const ProblemSink& problems) const {
  if (json.is_null()) return Value();
  return read_path(json, "", problems);
}

OrderedJson PathCodec::from_text(std::string_view text) const {
  return text == "null" ? OrderedJson() : OrderedJson(std::string(text));
}

std::optional<ResumeCodec::Value> ResumeCodec::read(const OrderedJson& json, const ProblemSink& problems) const {
  if (json.is_boolean()) return json.get<bool>() ? Value(resume_automatically) : Value();
  return PathCodec::read(json, problems);
}

OrderedJson ResumeCodec::from_text(std::string_view text) const {
  const OrderedJson flag = boolean_from_text(text);
  return flag.is_boolean() ? flag : PathCodec::from_text(text);
}

OrderedJson ResumeCodec::schema() const {
  return {{"anyOf", {PathCodec::schema(), {{"type", "boolean"}}}}};
}

std::optional<PathListCodec::Value> PathListCodec::read(const OrderedJson& json, const ProblemSink& problems) const {
  Value paths;
  if (json.is_null()) return paths;
  if (json.is_string()) {
    auto path = read_path(json, "", problems);
    if (!path) return {};
    paths.push_back(std::move(*path));
    return paths;
  }
  if (!json.is_array()) {
    report_wrong_type(problems, "a path or a list of paths", json);
    return {};
  }
  for (std::size_t i = 0; i < json.size(); ++i) {
    auto path = read_path(json[i], fmt::format("[{}]", i), problems);
    if (path) paths.push_back(std::move(*path));
  }
  return paths.size() == json.size() ? std::optional(paths) : std::nullopt;
}

OrderedJson PathListCodec::from_text(std::string_view text) const {
  if (text == "null") return {};
  if (text.starts_with('[')) {
    OrderedJson parsed = OrderedJson::parse(text, nullptr, /*allow_exceptions=*/false);
    if (!parsed.is_discarded()) return parsed;
  }
  OrderedJson list = OrderedJson::array();
  while (true) {
    const auto comma = text.find(',');
    list.push_back(std::string(text.substr(0, comma)));
    if (comma == std::string_view::npos) return list;
    text.remove_prefix(comma + 1);
  }
}

OrderedJson PathListCodec::to_json(const Value& value) const {
  OrderedJson list = OrderedJson::array();
  for (const auto& path : value) list.push_back(path.string());
  return list;
}

OrderedJson PathListCodec::schema() const {
  const OrderedJson path = PathCodec().schema();
  const OrderedJson list = {{"type", "array"}, {"items", path}};
  return {{"anyOf", {path, list}}};
}

std::optional<ValidationSize> ValidationSizeCodec::read(const OrderedJson& json, const ProblemSink& problems) const {
  if (!json.is_number()) {
    report_wrong_type(problems, "a number", json);
    return {};
  }
  const auto number = json.get<double>();
  if (number >= 0.0 && number < 1.0) return ValidationSize{.fraction = number};
  const auto rows = json.is_number_integer() ? whole_number(json) : std::nullopt;
  if (rows && *rows >= 1) return ValidationSize{.rows = *rows};
  problems("", fmt::format("must be {} (written without a decimal point), got {}", allowed(), json.dump()));
  return {};
}

OrderedJson ValidationSizeCodec::from_text(std::string_view text) const {
  return number_from_text(text);
}

OrderedJson ValidationSizeCodec::to_json(const Value& value) const {
  return value.fraction > 0.0 ? OrderedJson(value.fraction) : OrderedJson(value.rows);
}

OrderedJson ValidationSizeCodec::schema() const {
  const OrderedJson fraction = {{"type", "number"}, {"minimum", 0}, {"exclusiveMaximum", 1}};
  const OrderedJson rows = {{"type", "integer"}, {"minimum", 1}};
  return {{"anyOf", {fraction, rows}}};
}

std::optional<std::size_t> ChoiceNames::read(const OrderedJson& json, const ProblemSink& problems) const {
  std::string name;
  if (json.is_string()) {
    name = json.get<std::string>();
  } else if (json.is_boolean() && !when_true.empty()) {
    name = json.get<bool>() ? when_true : when_false;
  } else {
    report_wrong_type(problems, fmt::format("one of {}", fmt::join(names, ", ")), json);
    return {};
  }
  const auto found = std::find(names.begin(), names.end(), name);
  if (found != names.end()) return static_cast<std::size_t>(found - names.begin());
  const std::string near = nearest(name, names);
  problems("", fmt::format("must be one of {}, got {}{}", fmt::join(names, ", "), describe_json(json),
                           near.empty() ? "" : "; did you mean " + near + "?"));
  return {};
}

OrderedJson ChoiceNames::from_text(std::string_view text) const {
  return when_true.empty() ? OrderedJson(std::string(text)) : boolean_from_text(text);
}

OrderedJson ChoiceNames::schema() const {
  OrderedJson allowed = names;
  if (!when_true.empty()) {
    allowed.push_back(true);
    allowed.push_back(false);
  }
  return {{"enum", allowed}};
}

}  // namespace skrull
