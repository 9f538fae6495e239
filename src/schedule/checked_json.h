#pragma once
// Walks through the JSON of a user's file; what is missing, unknown or wrong is refused with file, path, what was
// expected and what was found.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "skrull/core/error.h"
#include "skrull/core/json.h"

namespace skrull {

/// A value inside a document, and the way to it. Must not outlive its CheckedJsonDocument.
class CheckedJson {
 public:
  CheckedJson(const OrderedJson& value, const std::string& file, std::string path)
      : value_(&value), file_(&file), path_(std::move(path)) {}

  /// Throws InvalidInput "<file>: <path>: expected <expected>, got <this value>".
  [[noreturn]] void refuse(std::string_view expected) const;
  /// The same with a message of its own.
  template <class... Args>
  [[noreturn]] void fail(fmt::format_string<Args...> message, Args&&... args) const {
    throw_invalid_input("{}: {}", where(), fmt::format(message, std::forward<Args>(args)...));
  }

  /// Members of an object. `check_keys` refuses any other than these.
  CheckedJson at(std::string_view key) const;
  std::optional<CheckedJson> find(std::string_view key) const;
  void check_keys(const std::vector<std::string>& known) const;
  const OrderedJson& object() const;

  /// Elements of a list.
  std::vector<CheckedJson> elements() const;
  std::vector<CheckedJson> elements(std::size_t count, std::string_view expected) const;

  double positive_number() const;
  double number_at_least(double least) const;
  /// A whole number from `least` to `most`.
  std::int64_t integer(std::int64_t least, std::int64_t most = INT64_MAX) const;
  std::string text() const;
  bool is_text() const { return value_->is_string(); }

 private:
  std::string where() const;
  double number() const;

  const OrderedJson* value_;
  const std::string* file_;
  std::string path_;
};

/// A parsed file: an object without repeated keys, of the format that its key `format` names. Throws InvalidInput.
class CheckedJsonDocument {
 public:
  CheckedJsonDocument(const std::string& text, std::string file, std::string_view format);
  CheckedJsonDocument(const CheckedJsonDocument&) = delete;
  CheckedJsonDocument& operator=(const CheckedJsonDocument&) = delete;

  CheckedJson root() const { return {value_, file_, ""}; }

 private:
  std::string file_;
  OrderedJson value_;
};

}  // namespace skrull
