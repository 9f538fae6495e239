#include "pre_tokenizer.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <string>
#include <vector>

#include "character_table.h"
#include "data/random_text.h"
#include "skrull/core/error.h"
#include "support/catch.h"

using namespace skrull;

namespace {

using Words = std::vector<std::string>;

Words split(const PreTokenizer& pre_tokenizer, const std::string& text) {
  Words words;
  pre_tokenizer.for_each_word(text, [&](std::string_view word) { words.emplace_back(word); });
  return words;
}

/// A one-character property of PCRE2.
class Property {
 public:
  explicit Property(const char* pattern) {
    int error = 0;
    PCRE2_SIZE offset = 0;
    code_ = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern), PCRE2_ZERO_TERMINATED, PCRE2_UTF | PCRE2_UCP, &error,
                          &offset, nullptr);
    REQUIRE(code_ != nullptr);
    data_ = pcre2_match_data_create_from_pattern(code_, nullptr);
  }
  ~Property() {
    pcre2_match_data_free(data_);
    pcre2_code_free(code_);
  }
  Property(const Property&) = delete;
  Property& operator=(const Property&) = delete;
  bool holds(const std::string& character) const {
    return pcre2_match(code_, reinterpret_cast<PCRE2_SPTR>(character.data()), character.size(), 0, 0, data_, nullptr) >
           0;
  }

 private:
  pcre2_code* code_ = nullptr;
  pcre2_match_data* data_ = nullptr;
};

}  // namespace

TEST_CASE("Qwen's split pattern on worked examples") {
  const PreTokenizer qwen(PreTokenizer::qwen_pattern);
  CHECK(split(qwen, "").empty());
  CHECK(split(qwen, "Hello  world") == Words{"Hello", " ", " world"});
  CHECK(split(qwen, "I've  SHE'LL'x") == Words{"I", "'ve", " ", " SHE", "'LL", "'x"});
  CHECK(split(qwen, "a'\u017Fb") == Words{"a", "'\u017F", "b"});
  CHECK(split(qwen, "2024!") == Words{"2", "0", "2", "4", "!"});
  CHECK(split(qwen, "x \n\n  y") == Words{"x", " \n\n", " ", " y"});
  CHECK(split(qwen, " ...\r\n\r\nz") == Words{" ...\r\n\r\n", "z"});
  CHECK(split(qwen, "\ta\t1") == Words{"\ta", "\t", "1"});
  CHECK(split(qwen, "end   ") == Words{"end", "   "});
  CHECK(split(qwen, "\u4F60\u597D\uFF0C\u4E16\u754C") == Words{"\u4F60\u597D", "\uFF0C\u4E16\u754C"});
}

TEST_CASE("the scanner and PCRE2 cut random text alike") {
  const PreTokenizer scanner(PreTokenizer::qwen_pattern);
  const PreTokenizer regex(PreTokenizer::qwen_pattern, true);
  Rng random(7);
  const Property unassigned("\\p{Cn}");
  for (int round = 0; round < 40000; ++round) {
    const std::string text = test::random_text(random, 24);
    // Letters newer than the installed PCRE2 may differ.
    if (unassigned.holds(text)) continue;
    INFO("round " << round << ": " << text);
    REQUIRE(split(scanner, text) == split(regex, text));
  }
}

TEST_CASE("every code point has the class that PCRE2 gives it, unless PCRE2 doesn't know it yet") {
  const CharacterTable& table = CharacterTable::instance();
  const Property letter("\\p{L}");
  const Property number("\\p{N}");
  const Property white_space("\\p{White_Space}");
  const Property unassigned("\\p{Cn}");
  std::int64_t unknown_to_pcre2 = 0;
  for (char32_t c = 0; c < 0x110000; ++c) {
    if (c >= 0xD800 && c <= 0xDFFF) continue;
    std::string text;
    test::append_utf8(c, text);
    const CharacterClass expected = c == '\n' || c == '\r'    ? CharacterClass::newline
                                    : letter.holds(text)      ? CharacterClass::letter
                                    : number.holds(text)      ? CharacterClass::number
                                    : white_space.holds(text) ? CharacterClass::white_space
                                                              : CharacterClass::other;
    if (table.character_class(c) == expected) continue;
    INFO("code point " << static_cast<std::uint32_t>(c));
    REQUIRE(unassigned.holds(text));
    ++unknown_to_pcre2;
  }
  CHECK(unknown_to_pcre2 < 20000);
}

TEST_CASE("any other pattern, with what it doesn't match as words of their own") {
  CHECK(split(PreTokenizer("[0-9]{1,3}"), "ab12345c") == Words{"ab", "123", "45", "c"});
  CHECK(split(PreTokenizer("x*"), "axxb") == Words{"a", "xx", "b"});
  CHECK(split(PreTokenizer("q"), "\u4F60\u597D") == Words{"\u4F60\u597D"});
  // U+180E has not been white space since Unicode 6.3.
  CHECK(split(PreTokenizer("\\s+|\\S+"), "a\u180Eb\u2003c") == Words{"a\u180Eb", "\u2003", "c"});
  CHECK_THROWS_AS(PreTokenizer("(a"), InvalidInput);
}

TEST_CASE("long runs of one kind are one word") {
  const std::string spaces(1000000, ' ');
  const std::string letters(1000000, 'a');
  for (const bool always_pcre2 : {false, true}) {
    const PreTokenizer pre_tokenizer(PreTokenizer::qwen_pattern, always_pcre2);
    CHECK(split(pre_tokenizer, letters) == Words{letters});
    CHECK(split(pre_tokenizer, spaces + "a") == Words{spaces.substr(1), " a"});
  }
}
