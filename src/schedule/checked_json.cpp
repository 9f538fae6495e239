#include "checked_json.h"

#include <algorithm>
#include <cmath>

#include "skrull/core/text.h"

namespace skrull {

std::string CheckedJson::where() const {
  return path_.empty() ? *file_ : fmt::format("{}: {}", *file_, path_);
}

void CheckedJson::refuse(std::string_view expected) const {
  fail("expected {}, got {}", expected, describe_json(*value_));
}

const OrderedJson& CheckedJson::object() const {
  if (!value_->is_object()) refuse("an object");
  return *value_;
}

std::optional<CheckedJson> CheckedJson::find(std::string_view key) const {
  const auto found = object().find(std::string(key));
  if (found == value_->end()) return {};
  return CheckedJson(*found, *file_, fmt::format("{}{}{}", path_, path_.empty() ? "" : ".", key));
}

CheckedJson CheckedJson::at(std::string_view key) const {
  const auto found = find(key);
  if (!found) fail("the key \"{}\" is missing", key);
  return *found;
}

void CheckedJson::check_keys(const std::vector<std::string>& known) const {
  for (const auto& [key, value] : object().items()) {
    if (std::find(known.begin(), known.end(), key) != known.end()) continue;
    const std::string near = nearest(key, known);
    fail("unknown key \"{}\"{}; known: {}", key, near.empty() ? "" : fmt::format("; did you mean \"{}\"?", near),
         fmt::join(known, ", "));
  }
}

std::vector<CheckedJson> CheckedJson::elements() const {
  if (!value_->is_array()) refuse("a list");
  std::vector<CheckedJson> all;
  all.reserve(value_->size());
  for (std::size_t i = 0; i < value_->size(); ++i) {
    all.emplace_back((*value_)[i], *file_, fmt::format("{}[{}]", path_, i));
  }
  return all;
}

std::vector<CheckedJson> CheckedJson::elements(std::size_t count, std::string_view expected) const {
  if (!value_->is_array()) refuse(expected);
  if (value_->size() != count) fail("expected {}, got a list of {}", expected, value_->size());
  return elements();
}

double CheckedJson::number() const {
  if (!value_->is_number()) refuse("a number");
  return value_->get<double>();
}

double CheckedJson::positive_number() const {
  const double value = number();
  if (!(value > 0.0 && std::isfinite(value))) refuse("a number greater than 0");
  return value;
}

double CheckedJson::number_at_least(double least) const {
  const double value = number();
  if (!(value >= least && std::isfinite(value))) refuse(fmt::format("a number of at least {}", least));
  return value;
}

std::int64_t CheckedJson::integer(std::int64_t least, std::int64_t most) const {
  const std::string expected = most == INT64_MAX ? fmt::format("a whole number of at least {}", least)
                                                 : fmt::format("a whole number from {} to {}", least, most);
  const bool too_large =
      value_->is_number_unsigned() && value_->get<std::uint64_t>() > static_cast<std::uint64_t>(INT64_MAX);
  if (!value_->is_number_integer() || too_large) refuse(expected);
  const auto value = value_->get<std::int64_t>();
  if (value < least || value > most) refuse(expected);
  return value;
}

std::string CheckedJson::text() const {
  if (!value_->is_string()) refuse("a string");
  return value_->get<std::string>();
}

CheckedJsonDocument::CheckedJsonDocument(const std::string& text, std::string file, std::string_view format)
    : file_(std::move(file)) {
  std::vector<std::string> repeated;
  value_ = parse_ordered_json(text, file_, repeated);
  if (!repeated.empty()) throw_invalid_input("{}: {}: the key stands in the file twice", file_, repeated.front());
  const CheckedJson found = root().at("format");
  if (!found.is_text() || found.text() != format) found.refuse(fmt::format("\"{}\"", format));
}

}  // namespace skrull
