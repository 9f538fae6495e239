#include "skrull/core/text.h"

#include "support/catch.h"

using namespace skrull;

TEST_CASE("numbers for people") {
  CHECK(format_bytes(1023) == "1023 B");
  CHECK(format_bytes(1536) == "1.5 KiB");
  CHECK(format_bytes(19971597926) == "18.6 GiB");
  CHECK(format_count(0) == "0");
  CHECK(format_count(999) == "999");
  CHECK(format_count(-1234567) == "-1,234,567");
  CHECK(format_duration(12.34) == "12.3s");
  CHECK(format_duration(185) == "3m 05s");
  CHECK(format_duration(3720) == "1h 02m");
}

TEST_CASE("nearest word") {
  const std::vector<std::string> keys{"learning_rate", "max_steps", "seed"};
  CHECK(nearest("learning_rte", keys) == "learning_rate");
  CHECK(nearest("max_step", keys) == "max_steps");
  CHECK(nearest("trian", {"eval", "train"}) == "train");
  CHECK(nearest("vela", {"eval", "train"}).empty());
  CHECK(nearest("completely_other", keys).empty());
}

TEST_CASE("invalid UTF-8 is found where it starts") {
  CHECK(find_invalid_utf8("plain, \xC3\xA9, \xE4\xB8\xAD, \xF0\x9F\x98\x80") == std::string::npos);
  CHECK(find_invalid_utf8("ab\xFF") == 2);
  CHECK(find_invalid_utf8("a\xC0\x80") == 1);         // overlong
  CHECK(find_invalid_utf8("a\xE0\x80\x80") == 1);     // overlong
  CHECK(find_invalid_utf8("abc\xED\xA0\x80") == 3);   // surrogate
  CHECK(find_invalid_utf8("\xF4\x90\x80\x80") == 0);  // above U+10FFFF
  CHECK(find_invalid_utf8("abc\xE4\xB8") == 3);       // cut off
}
