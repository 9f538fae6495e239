#include "skrull/data/rows.h"

#include <algorithm>
#include <utility>

#include "skrull/core/error.h"

namespace skrull {
namespace {

constexpr std::string_view byte_order_mark = "\xEF\xBB\xBF";
constexpr std::string_view json_space = " \t\r\n";

}  // namespace

RowReader::RowReader(std::string file, std::string_view content) : file_(std::move(file)), content_(content) {
  if (content_.starts_with("\xFF\xFE") || content_.starts_with("\xFE\xFF")) {
    throw_invalid_input("{}:1: the text is UTF-16; convert it to UTF-8", file_);
  }
  if (content_.starts_with("\x1F\x8B") || content_.starts_with("\x28\xB5\x2F\xFD") ||
      content_.starts_with("PK\x03\x04")) {
    throw_invalid_input("{}: the file is compressed; unpack it first", file_);
  }
  if (content_.starts_with(byte_order_mark)) position_ = line_begin_ = byte_order_mark.size();
  const std::size_t first = content_.find_first_not_of(json_space, position_);
  array_ = first != std::string_view::npos && content_[first] == '[';
  if (array_) advance_to(first + 1);
}

bool RowReader::next(Row& row) {
  return array_ ? next_element(row) : next_line(row);
}

bool RowReader::next_line(Row& row) {
  while (position_ < content_.size()) {
    const std::size_t end = std::min(content_.find('\n', position_), content_.size());
    std::string_view text = content_.substr(position_, end - position_);
    row.line = line_++;
    position_ = std::min(end + 1, content_.size());
    const std::size_t indent = text.find_first_not_of(json_space);
    if (indent == std::string_view::npos) continue;
    row.text = text.substr(indent, text.find_last_not_of(json_space) + 1 - indent);
    row.column = static_cast<std::int64_t>(indent) + 1;
    return true;
  }
  return false;
}

bool RowReader::next_element(Row& row) {
  if (finished_) return false;
  skip_space();
  if (position_ == content_.size()) fail("the file ends inside its array of rows, expected \"]\"");
  if (content_[position_] == ']') {
    finished_ = true;
    advance_to(position_ + 1);
    skip_space();
    if (position_ < content_.size()) fail("text after the end of the array of rows");
    return false;
  }
  if (started_) {
    if (content_[position_] != ',') fail("expected \",\" or \"]\" after a row");
    advance_to(position_ + 1);
    skip_space();
  }
  started_ = true;
  const std::size_t begin = position_;
  row.line = line_;
  row.column = static_cast<std::int64_t>(position_ - line_begin_) + 1;
  find_element_end();
  if (position_ == begin) fail("expected a row");
  const std::string_view text = content_.substr(begin, position_ - begin);
  row.text = text.substr(0, text.find_last_not_of(json_space) + 1);
  return true;
}

void RowReader::skip_space() {
  advance_to(std::min(content_.find_first_not_of(json_space, position_), content_.size()));
}

void RowReader::find_element_end() {
  std::size_t depth = 0;
  std::size_t i = position_;
  while (i < content_.size()) {
    const char letter = content_[i];
    if (letter == '"') {
      for (++i; i < content_.size() && content_[i] != '"'; ++i) {
        if (content_[i] == '\\') ++i;
      }
    } else if (letter == '{' || letter == '[') {
      ++depth;
    } else if (depth > 0 && (letter == '}' || letter == ']')) {
      --depth;
    } else if (depth == 0 && (letter == ',' || letter == ']')) {
      break;
    }
    ++i;
  }
  advance_to(std::min(i, content_.size()));
}

void RowReader::advance_to(std::size_t position) {
  const std::string_view passed = content_.substr(position_, position - position_);
  const std::size_t last_break = passed.rfind('\n');
  if (last_break != std::string_view::npos) {
    line_ += std::count(passed.begin(), passed.end(), '\n');
    line_begin_ = position_ + last_break + 1;
  }
  position_ = position;
}

void RowReader::fail(std::string_view reason) const {
  throw_invalid_input("{}:{}: column {}: {}", file_, line_, position_ - line_begin_ + 1, reason);
}

std::string locate(const Row& row, std::string_view file, std::size_t offset) {
  const std::string_view before = row.text.substr(0, offset);
  const std::size_t last_break = before.rfind('\n');
  if (last_break == std::string_view::npos) {
    return fmt::format("{}:{}: column {}", file, row.line, row.column + static_cast<std::int64_t>(before.size()));
  }
  const auto breaks = std::count(before.begin(), before.end(), '\n');
  return fmt::format("{}:{}: column {}", file, row.line + breaks, before.size() - last_break);
}

}  // namespace skrull
