// parse_row: a line of JSON into a value, with what templates need that a plain parse loses.

#include <string>
#include <utility>
#include <vector>

#include "skrull/core/error.h"
#include "skrull/core/json.h"
#include "skrull/data/conversation.h"

namespace skrull {
namespace {

/// Readers of the value may be recursive.
constexpr std::size_t deepest_nesting = 512;

/// nlohmann's out_of_range.406.
constexpr int number_overflow = 406;

/// The events of nlohmann::json::sax_parse, building the value.
class RowReader {
 public:
  OrderedJson take() { return std::move(row_); }

  bool null() { return add(nullptr); }
  bool boolean(bool value) { return add(value); }
  bool number_integer(OrderedJson::number_integer_t value) { return add(value); }
  bool number_unsigned(OrderedJson::number_unsigned_t value) { return add(value); }
  bool number_float(OrderedJson::number_float_t value, const std::string& digits) {
    const bool is_integer = digits.find_first_not_of("-0123456789") == std::string::npos;
    if (!is_integer) return add(value);
    return add(OrderedJson::binary(std::vector<std::uint8_t>(digits.begin(), digits.end())));
  }
  bool string(std::string& value) { return add(std::move(value)); }
  bool binary(OrderedJson::binary_t& /*value*/) { return false; }
  bool key(std::string& value) {
    key_ = std::move(value);
    return true;
  }
  bool start_object(std::size_t /*size*/) { return open(OrderedJson::object()); }
  bool end_object() { return close(); }
  bool start_array(std::size_t /*size*/) { return open(OrderedJson::array()); }
  bool end_array() { return close(); }
  bool parse_error(std::size_t position, const std::string& /*token*/, const nlohmann::detail::exception& error) {
    const std::string_view message = error.what();
    // "[id] parse error at line 1, column 9: <reason>; last read: '<part of the line>'; expected .."
    const std::size_t colon = message.find(": ");
    std::string_view reason = colon == std::string_view::npos ? message : message.substr(colon + 2);
    reason = reason.substr(0, reason.find("; last read"));
    if (error.id == number_overflow) reason = "a number is too large";
    throw RowSyntaxError(position, std::string(reason));
  }

 private:
  bool open(OrderedJson value) {
    if (open_.size() == deepest_nesting) {
      throw_invalid_input("JSON nested deeper than {} levels", deepest_nesting);
    }
    open_.push_back(place(std::move(value)));
    return true;
  }
  bool close() {
    open_.pop_back();
    return true;
  }
  bool add(OrderedJson value) {
    place(std::move(value));
    return true;
  }
  OrderedJson* place(OrderedJson value) {
    if (open_.empty()) return &(row_ = std::move(value));
    OrderedJson& parent = *open_.back();
    if (parent.is_object()) return &(parent[key_] = std::move(value));
    parent.push_back(std::move(value));
    return &parent.back();
  }

  OrderedJson row_;
  std::vector<OrderedJson*> open_;
  std::string key_;
};

}  // namespace

OrderedJson parse_row(std::string_view line) {
  RowReader reader;
  OrderedJson::sax_parse(line.begin(), line.end(), &reader);  // errors are thrown
  return reader.take();
}

void apply_system(OrderedJson& row) {
  const auto given = row.find("system");
  if (given == row.end() || given->is_null()) return;
  if (!given->is_string()) throw_invalid_input("\"system\" is of type {}, expected text", given->type_name());
  const auto system = given->get<std::string>();
  const auto found = row.find("messages");
  if (found == row.end()) return;
  OrderedJson& messages = *found;
  if (system.empty() || !messages.is_array()) return;  // other types are refused with the conversation
  const bool has_system = !messages.empty() && messages.front().is_object() && messages.front().contains("role") &&
                          messages.front().at("role") == "system";
  if (!has_system) messages.insert(messages.begin(), OrderedJson::object());
  messages.front() = OrderedJson{{"role", "system"}, {"content", system}};
}

}  // namespace skrull
