#include "skrull/core/json.h"

#include <algorithm>
#include <set>

#include "skrull/core/error.h"
#include "skrull/core/file.h"

namespace skrull {
namespace {

constexpr std::string_view byte_order_mark = "\xEF\xBB\xBF";
constexpr std::size_t longest_quote = 60;

/// The reason alone: nlohmann's messages begin with "[id] " and mostly a position that ends in ": ".
std::string_view reason_of(std::string_view message) {
  for (const std::string_view end_of_prefix : {": ", "] "}) {
    const auto found = message.find(end_of_prefix);
    if (found != std::string_view::npos) return message.substr(found + end_of_prefix.size());
  }
  return message;
}

/// Watches a parse for keys that an object holds twice.
class RepeatedKeyFinder {
 public:
  explicit RepeatedKeyFinder(std::vector<std::string>& found) : found_(found) {}

  bool operator()(int /*depth*/, OrderedJson::parse_event_t event, const OrderedJson& value) {
    if (event == OrderedJson::parse_event_t::object_start) {
      open_objects_.emplace_back();
    } else if (event == OrderedJson::parse_event_t::object_end) {
      open_objects_.pop_back();
    } else if (event == OrderedJson::parse_event_t::key) {
      OpenObject& object = open_objects_.back();
      object.current = value.get<std::string>();
      if (!object.seen.insert(object.current).second) found_.push_back(current_path());
    }
    return true;
  }

 private:
  struct OpenObject {
    std::set<std::string> seen;
    std::string current;
  };

  std::string current_path() const {
    std::string path;
    for (const OpenObject& object : open_objects_) path += (path.empty() ? "" : ".") + object.current;
    return path;
  }

  std::vector<std::string>& found_;
  std::vector<OpenObject> open_objects_;
};

template <class Value>
Value parse_text(std::string_view text, const std::string& name,
                 const typename Value::parser_callback_t& callback = nullptr) {
  if (text.starts_with(byte_order_mark)) text.remove_prefix(byte_order_mark.size());
  try {
    return Value::parse(text, callback);
  } catch (const typename Value::parse_error& error) {
    throw_invalid_input("{}: {}: {}", name, describe_position(text, error.byte > 0 ? error.byte - 1 : 0),
                        reason_of(error.what()));
  } catch (const typename Value::exception& error) {  // a number too large for a double
    throw_invalid_input("{}: {}", name, reason_of(error.what()));
  }
}

template <class Value>
Value parse_file(const std::filesystem::path& file, const typename Value::parser_callback_t& callback = nullptr) {
  return parse_text<Value>(MappedFile(file).text(), file.string(), callback);
}

}  // namespace

Json read_json_file(const std::filesystem::path& file) {
  return parse_file<Json>(file);
}
OrderedJson read_ordered_json_file(const std::filesystem::path& file) {
  return parse_file<OrderedJson>(file);
}

OrderedJson read_ordered_json_file(const std::filesystem::path& file, std::vector<std::string>& repeated_keys) {
  return parse_file<OrderedJson>(file, RepeatedKeyFinder(repeated_keys));
}

OrderedJson parse_ordered_json(std::string_view text, const std::string& name,
                               std::vector<std::string>& repeated_keys) {
  return parse_text<OrderedJson>(text, name, RepeatedKeyFinder(repeated_keys));
}

void write_json_file(const std::filesystem::path& file, const OrderedJson& value) {
  write_file_atomically(file, value.dump(2) + "\n");
}

std::string describe_json(const OrderedJson& value) {
  switch (value.type()) {
    case OrderedJson::value_t::null:
      return "null";
    case OrderedJson::value_t::array:
      return "a list";
    case OrderedJson::value_t::object:
      return "an object";
    case OrderedJson::value_t::boolean:
      return value.get<bool>() ? "the boolean true" : "the boolean false";
    case OrderedJson::value_t::string: {
      std::string text = value.get<std::string>();
      if (text.size() > longest_quote) text = text.substr(0, longest_quote) + "...";
      return "the string " + OrderedJson(text).dump(-1, ' ', false, OrderedJson::error_handler_t::replace);
    }
    default:
      return "the number " + value.dump();
  }
}

std::string describe_position(std::string_view text, std::size_t offset) {
  const std::string_view before = text.substr(0, std::min(offset, text.size()));
  const auto line = std::count(before.begin(), before.end(), '\n') + 1;
  const auto line_start = before.rfind('\n');
  const auto column = before.size() - (line_start == std::string_view::npos ? 0 : line_start + 1) + 1;
  return fmt::format("line {}, column {}", line, column);
}

}  // namespace skrull
