#pragma once
// How one option's value is read from JSON or command-line text, written as JSON, and described. One codec per kind of
// value; a codec has
//   Value                            the C++ type
//   read(json, problems)             the value, or nullopt after reporting what is wrong
//   from_text(text)                  command-line text as the JSON that read() takes
//   to_json(value), is_empty(value)  for the echo; empty: "not given"
//   schema()                         JSON Schema of the value
//   null_is_empty()                  null stands for "not given", though schema() does not say so
//   type_name(), allowed()           for people; allowed() is "" when anything of the type will do
//   accepts_switch()                 `--key` alone means true, `--no_key` false
//   choices()                        the list of a choice with what each means, or nullptr

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "skrull/config/train_config.h"
#include "skrull/core/error.h"
#include "skrull/core/json.h"

namespace skrull {

/// Receives what is wrong with a value: the place inside it ("" or "[2]") and the message.
using ProblemSink = std::function<void(const std::string& place, const std::string& message)>;

/// An interval of numbers; a missing bound is infinite.
template <class T>
struct Range {
  std::optional<T> lower;
  std::optional<T> upper;
  bool lower_open = false;
  bool upper_open = false;

  bool contains(T value) const {
    return (!lower || value > *lower || (value == *lower && !lower_open)) &&
           (!upper || value < *upper || (value == *upper && !upper_open));
  }
  /// "at least 1", "greater than 0 and at most 1"
  std::string describe() const;
};

template <class T>
Range<T> at_least(T lower) {
  return {.lower = lower, .upper = {}};
}
template <class T>
Range<T> greater_than(T lower) {
  return {.lower = lower, .upper = {}, .lower_open = true};
}
template <class T>
Range<T> between(T lower, T upper) {
  return {.lower = lower, .upper = upper};
}

/// The spellings of a choice, without its enum: what ChoiceCodec needs in common for all enums.
struct ChoiceNames {
  std::vector<std::string> names;
  std::vector<std::string> helps;
  std::string when_true;   ///< the name that JSON true stands for, or ""
  std::string when_false;  ///< the name that JSON false stands for, or ""

  /// Index of the name, or nullopt after reporting the nearest name and all of them.
  std::optional<std::size_t> read(const OrderedJson& json, const ProblemSink& problems) const;
  OrderedJson from_text(std::string_view text) const;
  OrderedJson schema() const;
};

/// What most codecs have in common.
struct PlainCodec {
  template <class Value>
  OrderedJson to_json(const Value& value) const {
    return value;
  }
  template <class Value>
  bool is_empty(const Value& /*value*/) const {
    return false;
  }
  std::string allowed() const { return ""; }
  bool null_is_empty() const { return false; }
  bool accepts_switch() const { return false; }
  const ChoiceNames* choices() const { return nullptr; }
};

/// An integer of 64 bits; a number without a fraction (2e3) will do. `also` is one value outside the range that has a
/// meaning of its own.
class IntegerCodec : public PlainCodec {
 public:
  using Value = std::int64_t;
  explicit IntegerCodec(Range<Value> range, std::optional<Value> also = {}) : range_(range), also_(also) {}

  std::optional<Value> read(const OrderedJson& json, const ProblemSink& problems) const;
  OrderedJson from_text(std::string_view text) const;
  OrderedJson schema() const;
  std::string type_name() const { return "integer"; }
  std::string allowed() const;

 private:
  Range<Value> range_;
  std::optional<Value> also_;
};

class NumberCodec : public PlainCodec {
 public:
  using Value = double;
  explicit NumberCodec(Range<Value> range) : range_(range) {}

  std::optional<Value> read(const OrderedJson& json, const ProblemSink& problems) const;
  OrderedJson from_text(std::string_view text) const;
  OrderedJson schema() const;
  std::string type_name() const { return "number"; }
  std::string allowed() const { return range_.describe(); }

 private:
  Range<Value> range_;
};

class BooleanCodec : public PlainCodec {
 public:
  using Value = bool;

  std::optional<Value> read(const OrderedJson& json, const ProblemSink& problems) const;
  OrderedJson from_text(std::string_view text) const;
  OrderedJson schema() const { return {{"type", "boolean"}}; }
  std::string type_name() const { return "boolean"; }
  bool accepts_switch() const { return true; }
};

/// A file or folder; null or an absent key is the empty path, an empty string is an error.
class PathCodec : public PlainCodec {
 public:
  using Value = std::filesystem::path;

  std::optional<Value> read(const OrderedJson& json, const ProblemSink& problems) const;
  OrderedJson from_text(std::string_view text) const;
  OrderedJson to_json(const Value& value) const { return value.empty() ? OrderedJson() : OrderedJson(value.string()); }
  bool is_empty(const Value& value) const { return value.empty(); }
  OrderedJson schema() const { return {{"type", "string"}, {"minLength", 1}}; }
  bool null_is_empty() const { return true; }
  std::string type_name() const { return "path"; }
};

/// What to continue from: a path or the word "auto", for which true stands too; false is null.
class ResumeCodec : public PathCodec {
 public:
  std::optional<Value> read(const OrderedJson& json, const ProblemSink& problems) const;
  OrderedJson from_text(std::string_view text) const;
  OrderedJson schema() const;
  std::string allowed() const { return "auto (or true), a checkpoint, or an output_dir that holds some"; }
};

/// One path or a list of them; null is the empty list.
class PathListCodec : public PlainCodec {
 public:
  using Value = std::vector<std::filesystem::path>;

  std::optional<Value> read(const OrderedJson& json, const ProblemSink& problems) const;
  OrderedJson from_text(std::string_view text) const;
  OrderedJson to_json(const Value& value) const;
  bool is_empty(const Value& value) const { return value.empty(); }
  OrderedJson schema() const;
  bool null_is_empty() const { return true; }
  std::string type_name() const { return "path or list of paths"; }
};

/// 0, a fraction below 1, or a whole number of rows.
class ValidationSizeCodec : public PlainCodec {
 public:
  using Value = ValidationSize;

  std::optional<Value> read(const OrderedJson& json, const ProblemSink& problems) const;
  OrderedJson from_text(std::string_view text) const;
  OrderedJson to_json(const Value& value) const;
  bool is_empty(const Value& value) const { return value.empty(); }
  OrderedJson schema() const;
  std::string type_name() const { return "number"; }
  std::string allowed() const { return "0, a fraction between 0 and 1, or a whole number of rows"; }
};

/// One of a list of enum values. With `when_true` and `when_false`, booleans are accepted as two of them.
template <class Enum>
class ChoiceCodec : public PlainCodec {
 public:
  using Value = Enum;
  explicit ChoiceCodec(std::span<const Choice<Enum>> choices = choices_of<Enum>) : choices_(choices) {
    for (const Choice<Enum>& choice : choices) {
      names_.names.emplace_back(choice.name);
      names_.helps.emplace_back(choice.help);
    }
  }
  ChoiceCodec(Enum when_true, Enum when_false) : ChoiceCodec() {
    names_.when_true = name_of(when_true);
    names_.when_false = name_of(when_false);
  }

  std::optional<Value> read(const OrderedJson& json, const ProblemSink& problems) const {
    const auto index = names_.read(json, problems);
    return index ? std::optional<Value>(choices_[*index].value) : std::nullopt;
  }
  OrderedJson from_text(std::string_view text) const { return names_.from_text(text); }
  OrderedJson to_json(Value value) const {
    for (const Choice<Enum>& choice : choices_) {
      if (choice.value == value) return std::string(choice.name);
    }
    throw_run_failure("value {} of an enum option has no spelling", static_cast<int>(value));
  }
  OrderedJson schema() const { return names_.schema(); }
  std::string type_name() const { return "choice"; }
  std::string allowed() const { return fmt::format("{}", fmt::join(names_.names, ", ")); }
  bool accepts_switch() const { return !names_.when_true.empty(); }
  const ChoiceNames* choices() const { return &names_; }

 private:
  std::span<const Choice<Enum>> choices_;
  ChoiceNames names_;
};

/// An optional value; `absent` is its spelling when there is none: "null" (JSON null) or a word such as "auto".
template <class Inner>
class OptionalCodec : public PlainCodec {
 public:
  using Value = std::optional<typename Inner::Value>;
  explicit OptionalCodec(Inner inner, std::string absent = "null")
      : inner_(std::move(inner)), absent_(std::move(absent)) {}

  std::optional<Value> read(const OrderedJson& json, const ProblemSink& problems) const {
    if (json == absent_json()) return Value();
    const auto value = inner_.read(json, [&](const std::string& place, const std::string& message) {
      problems(place, fmt::format("{} ({} is allowed too)", message, absent_));
    });
    return value ? std::optional<Value>(*value) : std::nullopt;
  }
  OrderedJson from_text(std::string_view text) const {
    return text == absent_ ? absent_json() : inner_.from_text(text);
  }
  OrderedJson to_json(const Value& value) const { return value ? inner_.to_json(*value) : absent_json(); }
  bool is_empty(const Value& value) const { return !value; }
  OrderedJson schema() const {
    const OrderedJson absent = {{"const", absent_json()}};
    return {{"anyOf", {inner_.schema(), absent}}};
  }
  std::string type_name() const { return inner_.type_name(); }
  std::string allowed() const { return (inner_.allowed().empty() ? "" : inner_.allowed() + ", or ") + absent_; }
  const ChoiceNames* choices() const { return inner_.choices(); }

 private:
  OrderedJson absent_json() const { return absent_ == "null" ? OrderedJson() : OrderedJson(absent_); }

  Inner inner_;
  std::string absent_;
};

}  // namespace skrull
