#include "nfc.h"

#include <utf8proc.h>

#include <cstdlib>
#include <string>

#include "data/random_text.h"
#include "support/catch.h"

using namespace skrull;

namespace {

std::string nfc(std::string_view text) {
  std::string buffer;
  return std::string(normalize_nfc(text, buffer));
}

/// utf8proc on the whole text, without a quick check.
std::string whole_text_nfc(const std::string& text) {
  utf8proc_uint8_t* result = nullptr;
  const utf8proc_ssize_t size =
      utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()), static_cast<utf8proc_ssize_t>(text.size()),
                   &result, static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
  REQUIRE(size >= 0);
  std::string normalized(reinterpret_cast<const char*>(result), static_cast<std::size_t>(size));
  std::free(result);  // NOLINT: utf8proc allocates with malloc
  return normalized;
}

}  // namespace

TEST_CASE("worked examples of NFC") {
  CHECK(nfc("") == "");
  CHECK(nfc("e\u0301") == "\u00E9");
  CHECK(nfc("\u212B") == "\u00C5");
  CHECK(nfc("xe\u0323\u0302y") == "x\u1EC7y");
  CHECK(nfc("xe\u0302\u0323y") == "x\u1EC7y");
  CHECK(nfc("\u1100\u1161\u11A8") == "\uAC01");
  CHECK(nfc("\uAC00\u11A8") == "\uAC01");
  CHECK(nfc("\uAC00\u11A7") == "\uAC00\u11A7");
  CHECK(nfc("\u0958") == "\u0915\u093C");  // excluded from composition
  CHECK(nfc("\u0301a") == "\u0301a");
  CHECK(nfc(std::string("a\0b", 3)) == std::string("a\0b", 3));
}

TEST_CASE("text in NFC is returned without a copy") {
  std::string buffer;
  for (const std::string_view text : {"plain", "caf\u00E9 \u4F60\u597D \uAC01", "\U0001F600"}) {
    CHECK(normalize_nfc(text, buffer).data() == text.data());
  }
}

TEST_CASE("normalizing part by part equals normalizing the whole") {
  Rng random(11);
  for (int round = 0; round < 40000; ++round) {
    const std::string text = test::random_text(random, 20);
    // utf8proc takes U+11A7 for a final consonant and swallows it after a Hangul syllable.
    if (text.find("\u11A7") != std::string::npos) continue;
    INFO("round " << round << ": " << text);
    REQUIRE(nfc(text) == whole_text_nfc(text));
  }
}
