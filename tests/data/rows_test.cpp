#include "skrull/data/rows.h"

#include <string>
#include <vector>

#include "byte_encoder.h"
#include "support/catch.h"

using namespace skrull;
using test::contains;
using test::invalid_input_of;

namespace {

/// "line:column:text" of every row.
std::vector<std::string> rows_of(std::string_view content) {
  RowReader reader("f", content);
  std::vector<std::string> rows;
  for (Row row; reader.next(row);) rows.push_back(fmt::format("{}:{}:{}", row.line, row.column, row.text));
  CHECK(reader.position() == static_cast<std::int64_t>(content.size()));
  Row row;
  CHECK_FALSE(reader.next(row));
  return rows;
}

using Rows = std::vector<std::string>;

std::string failure_of(std::string_view content) {
  return invalid_input_of([&] { rows_of(content); });
}

}  // namespace

TEST_CASE("JSON Lines with byte order mark, CRLF, blank lines, indentation and no final newline") {
  CHECK(rows_of("{\"a\":1}\n{\"b\":2}\n") == Rows{"1:1:{\"a\":1}", "2:1:{\"b\":2}"});
  CHECK(rows_of("\xEF\xBB\xBF{1}\r\n\r\n \t\r\n  {2} \r\n{3}") == Rows{"1:1:{1}", "4:3:{2}", "5:1:{3}"});
  CHECK(rows_of("").empty());
  CHECK(rows_of("\n\n  \r\n").empty());
  CHECK(rows_of("\xEF\xBB\xBF").empty());
}

TEST_CASE("one JSON array of rows") {
  CHECK(rows_of("[{\"a\":1},{\"b\":[1,2]}]") == Rows{"1:2:{\"a\":1}", "1:10:{\"b\":[1,2]}"});
  CHECK(rows_of("\xEF\xBB\xBF \n[\n  {\"a\": \"],\\\"}{\"},\n\n  {\n  \"b\": 2}\n]\r\n\n") ==
        Rows{"3:3:{\"a\": \"],\\\"}{\"}", "5:3:{\n  \"b\": 2}"});
  CHECK(rows_of(" [ ] ").empty());
}

TEST_CASE("a broken array names line and column") {
  CHECK(failure_of("[{\"a\":1},\n {\"b\":2}") ==
        "f:2: column 9: the file ends inside its array of rows, expected \"]\"");
  CHECK(failure_of("[{\"a\":1}\n]\nmore") == "f:3: column 1: text after the end of the array of rows");
  CHECK(failure_of("[{\"a\":1},\n]") == "f:2: column 1: expected a row");
  CHECK(failure_of("[,{}]") == "f:1: column 2: expected a row");
  CHECK(failure_of("[{\"a\": \"no end\\") == "f:1: column 16: the file ends inside its array of rows, expected \"]\"");
}

TEST_CASE("UTF-16 is recognised") {
  CHECK(failure_of(std::string_view("\xFF\xFE{\0", 4)) == "f:1: the text is UTF-16; convert it to UTF-8");
}

TEST_CASE("positions inside a row of several lines") {
  const Row row{"{\n  \"b\": x}", 5, 3};
  CHECK(locate(row, "f", 0) == "f:5: column 3");
  CHECK(locate(row, "f", 9) == "f:6: column 8");
}

TEST_CASE("compressed files are recognised") {
  CHECK(failure_of("\x1F\x8B\x08{}") == "f: the file is compressed; unpack it first");
  CHECK(failure_of("\x28\xB5\x2F\xFD{}") == "f: the file is compressed; unpack it first");
  CHECK(failure_of("PK\x03\x04{}") == "f: the file is compressed; unpack it first");
}
