#include "python_text.h"

#include <utf8proc.h>

#include <array>
#include <charconv>

#include "character_table.h"
#include "skrull/core/error.h"
#include "skrull/core/json.h"

namespace skrull {
namespace {

/// What differs between json.dumps and repr.
struct Style {
  const char* null_word;
  const char* true_word;
  const char* false_word;
  void (*append_text)(std::string_view, std::string&);
};

void append_json_text(std::string_view text, std::string& output) {
  output += '"';
  for (const char c : text) {
    switch (c) {
      case '"':
        output += "\\\"";
        break;
      case '\\':
        output += "\\\\";
        break;
      case '\n':
        output += "\\n";
        break;
      case '\r':
        output += "\\r";
        break;
      case '\t':
        output += "\\t";
        break;
      case '\b':
        output += "\\b";
        break;
      case '\f':
        output += "\\f";
        break;
      default:
        if (static_cast<unsigned char>(c) < 0x20) {
          fmt::format_to(std::back_inserter(output), "\\u{:04x}", static_cast<unsigned char>(c));
        } else {
          output += c;
        }
    }
  }
  output += '"';
}

/// str.isprintable() of one character.
bool is_printable(char32_t c) {
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(c))) {
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
      return false;
    case UTF8PROC_CATEGORY_ZS:
      return c == ' ';
    default:
      return true;
  }
}

void append_repr_text(std::string_view text, std::string& output) {
  const bool single = text.find('\'') == std::string_view::npos || text.find('"') != std::string_view::npos;
  const char quote = single ? '\'' : '"';
  output += quote;
  for (std::size_t i = 0; i < text.size();) {
    const DecodedCharacter character = decode_character(text, i);
    const char32_t c = character.code_point;
    if (c == '\n') {
      output += "\\n";
    } else if (c == '\r') {
      output += "\\r";
    } else if (c == '\t') {
      output += "\\t";
    } else if (c == '\\' || c == static_cast<char32_t>(quote)) {
      output += '\\';
      output += static_cast<char>(c);
    } else if (is_printable(c)) {
      output += text.substr(i, character.length);
    } else {
      const auto code = static_cast<std::uint32_t>(c);
      output += c < 0x100     ? fmt::format("\\x{:02x}", code)
                : c < 0x10000 ? fmt::format("\\u{:04x}", code)
                              : fmt::format("\\U{:08x}", code);
    }
    i += character.length;
  }
  output += quote;
}

constexpr Style json_style{"null", "true", "false", append_json_text};
constexpr Style repr_style{"None", "True", "False", append_repr_text};

void append_value(const OrderedJson& value, const Style& style, std::string& output) {
  switch (value.type()) {
    case OrderedJson::value_t::null:
      output += style.null_word;
      break;
    case OrderedJson::value_t::boolean:
      output += value.get<bool>() ? style.true_word : style.false_word;
      break;
    case OrderedJson::value_t::number_integer:
      output += fmt::format("{}", value.get<std::int64_t>());
      break;
    case OrderedJson::value_t::number_unsigned:
      output += fmt::format("{}", value.get<std::uint64_t>());
      break;
    case OrderedJson::value_t::number_float:
      output += python_float(value.get<double>());
      break;
    case OrderedJson::value_t::binary:
      output.append(value.get_binary().begin(), value.get_binary().end());
      break;
    case OrderedJson::value_t::string:
      style.append_text(value.get_ref<const std::string&>(), output);
      break;
    case OrderedJson::value_t::array: {
      const char* separator = "";
      output += '[';
      for (const OrderedJson& element : value) {
        output += separator;
        append_value(element, style, output);
        separator = ", ";
      }
      output += ']';
      break;
    }
    case OrderedJson::value_t::object: {
      const char* separator = "";
      output += '{';
      for (const auto& item : value.items()) {
        output += separator;
        style.append_text(item.key(), output);
        output += ": ";
        append_value(item.value(), style, output);
        separator = ", ";
      }
      output += '}';
      break;
    }
    case OrderedJson::value_t::discarded:
      throw RunFailure("a discarded JSON value can't be printed");
  }
}

}  // namespace

std::string python_json(const OrderedJson& value) {
  std::string output;
  append_value(value, json_style, output);
  return output;
}

std::string python_str(const OrderedJson& value) {
  if (value.is_string()) return value.get<std::string>();
  std::string output;
  append_value(value, repr_style, output);
  return output;
}

bool python_truth(const OrderedJson& value) {
  if (value.is_boolean()) return value.get<bool>();
  if (value.is_number()) return value.get<double>() != 0;
  if (value.is_string()) return !value.get_ref<const std::string&>().empty();
  // Null and empty containers are false; a big integer is a binary value that isn't empty.
  return value.is_binary() || !value.empty();
}

std::string python_float(double value) {
  std::array<char, 32> buffer{};
  const std::to_chars_result end =
      std::to_chars(buffer.data(), buffer.data() + buffer.size(), value, std::chars_format::scientific);
  std::string_view text(buffer.data(), static_cast<std::size_t>(end.ptr - buffer.data()));
  std::string output;
  if (text.starts_with('-')) {
    output = "-";
    text.remove_prefix(1);
  }
  const std::size_t e = text.find('e');
  if (e == std::string_view::npos) throw_invalid_input("{} is not a finite number", value);
  std::string digits(1, text[0]);
  if (e > 2) digits += text.substr(2, e - 2);
  int exponent = 0;
  const char* const exponent_begin = text.data() + e + (text[e + 1] == '+' ? 2 : 1);
  std::from_chars(exponent_begin, text.data() + text.size(), exponent);
  const int count = static_cast<int>(digits.size());
  constexpr int smallest_fixed = -4;
  constexpr int largest_fixed = 15;
  if (exponent < smallest_fixed || exponent > largest_fixed) {
    output += digits.substr(0, 1);
    if (count > 1) output += "." + digits.substr(1);
    return output + fmt::format("e{}{:02}", exponent < 0 ? '-' : '+', exponent < 0 ? -exponent : exponent);
  }
  if (exponent < 0) return output + "0." + std::string(static_cast<std::size_t>(-exponent - 1), '0') + digits;
  if (exponent + 1 >= count)
    return output + digits + std::string(static_cast<std::size_t>(exponent + 1 - count), '0') + ".0";
  const auto point = static_cast<std::size_t>(exponent + 1);
  return output + digits.substr(0, point) + "." + digits.substr(point);
}

}  // namespace skrull
