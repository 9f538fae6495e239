#pragma once
// The rows of a data file: JSON Lines, or one JSON array. Rows are found here and parsed later, on several threads.

#include <cstdint>
#include <string>
#include <string_view>

namespace skrull {

/// The text of one row, not parsed yet. Points into the content given to the RowReader.
struct Row {
  std::string_view text;
  std::int64_t line = 1;    ///< of its first byte, from 1
  std::int64_t column = 1;  ///< of its first byte, in bytes, from 1
};

/// Walks over the rows of one file in order. A file whose first character is "[" is one JSON array of rows, whatever
/// its name; any other is JSON Lines. A UTF-8 byte order mark, CRLF line ends and blank lines are accepted. Memory
/// does not depend on the file or on the length of a line.
class RowReader {
 public:
  /// `file` is how errors name the file. Keeps a view of `content`. Throws InvalidInput for UTF-16 text.
  RowReader(std::string file, std::string_view content);

  /// The next row, or false at the end. Throws InvalidInput where the array around the rows is broken.
  bool next(Row& row);

  /// Bytes passed so far.
  std::int64_t position() const { return static_cast<std::int64_t>(position_); }
  const std::string& file() const { return file_; }

 private:
  bool next_line(Row& row);
  bool next_element(Row& row);
  void skip_space();
  void find_element_end();
  void advance_to(std::size_t position);
  [[noreturn]] void fail(std::string_view reason) const;

  std::string file_;
  std::string_view content_;
  std::size_t position_ = 0;
  std::int64_t line_ = 1;
  std::size_t line_begin_ = 0;
  bool array_ = false;
  bool started_ = false;   ///< the array has given its first row
  bool finished_ = false;  ///< the array is closed
};

/// "<file>:<line>: column <column>" of byte `offset` of `row`.
std::string locate(const Row& row, std::string_view file, std::size_t offset);

}  // namespace skrull
