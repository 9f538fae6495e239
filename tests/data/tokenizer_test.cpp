#include "skrull/data/tokenizer.h"

#include <string>
#include <thread>
#include <vector>

#include "data/errors.h"
#include "data/random_text.h"
#include "data/tiny_tokenizer.h"
#include "nfc.h"
#include "skrull/core/error.h"
#include "skrull/core/rng.h"
#include "support/catch.h"
#include "support/support.h"

using namespace skrull;
using test::contains;

namespace {

using Ids = std::vector<std::int32_t>;

// Ids of the tiny tokenizer's merges.
constexpr std::int32_t he = 256, ll = 257, hello = 259, space_w = 260, two_newlines = 261, or_ = 262, space_hello = 263;

Tokenizer load_tokenizer(const Json& tokenizer_json) {
  const test::TemporaryFolder folder;
  write_json_file(folder / "tokenizer.json", tokenizer_json);
  return Tokenizer::load(folder.path());
}

Tokenizer load_tiny() {
  const test::TemporaryFolder folder;
  test::write_tiny_tokenizer(folder.path());
  return Tokenizer::load(folder.path());
}

}  // namespace

TEST_CASE("ids worked out by hand") {
  const Tokenizer tokenizer = load_tiny();
  CHECK(tokenizer.encode("", AddedTokens::recognize).empty());
  CHECK(tokenizer.encode("hello world", AddedTokens::recognize) == Ids{hello, space_w, or_, 'l', 'd'});
  CHECK(tokenizer.encode(" hello hell", AddedTokens::recognize) == Ids{space_hello, ' ', 258});
  CHECK(tokenizer.encode("he ll\n\nhello\n", AddedTokens::recognize) == Ids{he, ' ', ll, two_newlines, hello, '\n'});
  // e + U+0301 is one character in NFC, two bytes.
  CHECK(tokenizer.encode("e\u0301", AddedTokens::recognize) == Ids{0xC3, 0xA9});
  CHECK(tokenizer.eos_id() == test::tiny_im_end);
  CHECK(tokenizer.pad_id() == test::tiny_end_of_text);
  CHECK(tokenizer.vocab_size() == 311);
  CHECK(tokenizer.find_token("<|im_start|>") == test::tiny_im_start);
  CHECK(tokenizer.find_token(" hello") == space_hello);
  CHECK_FALSE(tokenizer.find_token("<|nothing|>").has_value());
  CHECK(tokenizer.token_bytes(space_w) == " w");
  CHECK(tokenizer.token_bytes(264).empty());
  CHECK(tokenizer.files().size() == 2);
}

TEST_CASE("added tokens become control tokens only when asked for") {
  const Tokenizer tokenizer = load_tiny();
  const std::string text = "he<|im_end|>\n\n<|im_end|><|im_end";
  Ids ids = tokenizer.encode(text, AddedTokens::recognize);
  CHECK(Ids(ids.begin(), ids.begin() + 4) == Ids{he, test::tiny_im_end, two_newlines, test::tiny_im_end});
  CHECK(tokenizer.decode(ids) == text);
  ids = tokenizer.encode(text, AddedTokens::plain);
  CHECK(tokenizer.decode(ids) == text);
  CHECK(ids.size() == text.size() - 1 - 1);  // two merges: "he" and "\n\n"
  for (const std::int32_t id : ids) CHECK(id < test::tiny_im_start);
}

TEST_CASE("of two added tokens the longer one is taken, and normalized ones are looked for after NFC") {
  Json json = test::tiny_tokenizer_json();
  json["added_tokens"].push_back({{"id", 320}, {"content", "<a>"}});
  json["added_tokens"].push_back({{"id", 321}, {"content", "<a><b>"}});
  json["added_tokens"].push_back({{"id", 322}, {"content", "\u00E9"}, {"normalized", true}});
  const Tokenizer tokenizer = load_tokenizer(json);
  CHECK(tokenizer.encode("<a><b><a>", AddedTokens::recognize) == Ids{321, 320});
  CHECK(tokenizer.encode("e\u0301<a>", AddedTokens::recognize) == Ids{322, 320});
  CHECK(tokenizer.encode("e\u0301", AddedTokens::plain) == Ids{0xC3, 0xA9});
}

TEST_CASE("all forms of the files give one tokenizer") {
  const Tokenizer expected = load_tiny();
  std::vector<Tokenizer> others;
  Json pairs = test::tiny_tokenizer_json();
  pairs["model"]["merges"] = Json::array();
  for (const auto& [left, right] : test::tiny_merges()) pairs["model"]["merges"].push_back({left, right});
  others.push_back(load_tokenizer(pairs));

  for (const bool header_and_crlf : {false, true}) {
    const test::TemporaryFolder folder;
    Json decoder = Json::object();
    for (const auto& [content, id] : test::tiny_added_tokens()) decoder[std::to_string(id)] = {{"content", content}};
    Json config = test::tiny_tokenizer_config();
    config["added_tokens_decoder"] = decoder;
    std::string merges = header_and_crlf ? "#version: 0.2\r\n" : "";
    for (const auto& [left, right] : test::tiny_merges()) {
      merges += left + " " + right + (header_and_crlf ? "\r\n" : "\n");
    }
    write_json_file(folder / "vocab.json", test::tiny_vocab());
    write_file_atomically(folder / "merges.txt", merges);
    write_json_file(folder / "tokenizer_config.json", config);
    others.push_back(Tokenizer::load(folder.path()));
  }
  for (const Tokenizer& other : others) {
    CHECK(other.vocab_size() == expected.vocab_size());
    CHECK(other.added_tokens().size() == expected.added_tokens().size());
    for (const char* text : {"hello world\n\n", "<|im_start|>user\nhe<|im_end|>", "e\u0301 12"}) {
      CHECK(other.encode(text, AddedTokens::recognize) == expected.encode(text, AddedTokens::recognize));
    }
  }
}

TEST_CASE("the split pattern and the normalizer are the file's") {
  Json json = test::tiny_tokenizer_json();
  json["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"] = "[a-z]";
  json["normalizer"] = nullptr;
  const Tokenizer letters = load_tokenizer(json);
  CHECK(letters.encode("hello", AddedTokens::recognize) == Ids{'h', 'e', 'l', 'l', 'o'});
  CHECK(letters.encode("e\u0301", AddedTokens::recognize) == Ids{'e', 0xCC, 0x81});
  json["pre_tokenizer"] = {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", true}};
  // GPT-2's pattern keeps digits together and doesn't join a newline to what stands before it.
  CHECK(load_tokenizer(json).encode("hello", AddedTokens::recognize) == Ids{hello});
}

TEST_CASE("decoding gives back the text in NFC") {
  const Tokenizer tokenizer = load_tiny();
  Rng random(1);
  std::string buffer;
  for (int round = 0; round < 20000; ++round) {
    const std::string text = test::random_text(random, 30);
    REQUIRE(tokenizer.decode(tokenizer.encode(text, AddedTokens::plain)) == normalize_nfc(text, buffer));
  }
}

TEST_CASE("invalid UTF-8 is refused with its place") {
  const Tokenizer tokenizer = load_tiny();
  const std::string message = test::invalid_input_of([&] { tokenizer.encode("ab\xFFx", AddedTokens::recognize); });
  CHECK(message == "the text is not valid UTF-8 at byte 2 of 4");
}

TEST_CASE("a stream of ids never cuts a character") {
  const Tokenizer tokenizer = load_tiny();
  const std::string text = "a\u00E9\u4F60\U0001F600z";
  StreamDecoder decoder(tokenizer);
  std::vector<std::string> pieces;
  for (const std::int32_t id : tokenizer.encode(text, AddedTokens::plain)) {
    if (std::string piece = decoder.push(id); !piece.empty()) pieces.push_back(piece);
  }
  CHECK(pieces == std::vector<std::string>{"a", "\u00E9", "\u4F60", "\U0001F600", "z"});
  CHECK(decoder.finish().empty());
  CHECK(decoder.push(0xE4).empty());
  CHECK(decoder.push(0xBD).empty());
  CHECK(decoder.push(test::tiny_im_end) == "\xE4\xBD<|im_end|>");
  CHECK(decoder.push(0xF0).empty());
  CHECK(decoder.finish() == "\xF0");
  // A byte that can't belong to any character isn't held back.
  CHECK(decoder.push(0x80) == "\x80");
}

TEST_CASE("several threads may encode at once") {
  const Tokenizer tokenizer = load_tiny();
  std::vector<std::string> texts;
  std::vector<Ids> expected;
  Rng random(2);
  for (int i = 0; i < 300; ++i) texts.push_back(test::random_text(random, 40) + " hello world");
  for (const std::string& text : texts) expected.push_back(tokenizer.encode(text, AddedTokens::recognize));
  std::vector<int> differences(4, 0);
  std::vector<std::thread> threads;
  for (int& found : differences) {
    threads.emplace_back([&] {
      for (std::size_t i = 0; i < texts.size(); ++i) {
        found += tokenizer.encode(texts[i], AddedTokens::recognize) == expected[i] ? 0 : 1;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(differences == std::vector<int>(4, 0));
}

TEST_CASE("what is not supported is refused with its JSON path") {
  struct Change {
    const char* pointer;
    Json value;
    const char* expected;
  };
  const std::vector<Change> changes{
      {"/model/type", "Unigram", "model.type is \"Unigram\""},
      {"/model/dropout", 0.1, "model.dropout is 0.1"},
      {"/model/byte_fallback", true, "model.byte_fallback is true"},
      {"/model/ignore_merges", true, "model.ignore_merges is true"},
      {"/model/end_of_word_suffix", "</w>", "model.end_of_word_suffix is \"</w>\""},
      {"/model/vocab", Json::object(), "model.vocab is missing or empty"},
      {"/model/vocab/a", "x", "near \"a\""},
      {"/model/merges/1", Json{"a"}, "model.merges[1] has 1 parts"},
      {"/model/merges/1", 5, "near number 1"},
      {"/normalizer/type", "Lowercase", "normalizer.type is \"Lowercase\""},
      {"/normalizer", {{"type", "Sequence"}, {"normalizers", {{{"type", "NFKC"}}}}}, "normalizers[0].type is \"NFKC\""},
      {"/pre_tokenizer/type", "Whitespace", "pre_tokenizer.type is \"Whitespace\""},
      {"/pre_tokenizer/pretokenizers/0/behavior", "Removed", "pretokenizers[0].behavior is \"Removed\""},
      {"/pre_tokenizer/pretokenizers/0/pattern/Regex", 3, "pattern.Regex is 3"},
      {"/pre_tokenizer/pretokenizers/0/pattern/Regex", "(a", "(a"},
      {"/pre_tokenizer/pretokenizers/1/add_prefix_space", true, "pretokenizers[1].add_prefix_space is true"},
      {"/post_processor/type", "TemplateProcessing", "post_processor.type is \"TemplateProcessing\""},
      {"/decoder/type", "WordPiece", "decoder.type is \"WordPiece\""},
      {"/added_tokens/1/lstrip", true, "added_tokens[1].lstrip is true"},
      {"/added_tokens/1/content", "", "added_tokens[1].content is \"\""},
      {"/added_tokens/1/id", -4, "added_tokens[1].id is -4"},
      {"/added_tokens/1/id", "7", "added_tokens[1].id is \"7\""},
  };
  for (const Change& change : changes) {
    Json json = test::tiny_tokenizer_json();
    json[Json::json_pointer(change.pointer)] = change.value;
    const std::string message = test::invalid_input_of([&] { load_tokenizer(json); });
    INFO(change.pointer << ": " << message);
    CHECK(contains(message, change.expected));
    CHECK(contains(message, "skrull-test-"));  // the folder
  }
}

TEST_CASE("missing and broken files") {
  const test::TemporaryFolder folder;
  CHECK_FALSE(Tokenizer::is_in(folder.path()));
  const auto load_error = [&] { return test::invalid_input_of([&] { Tokenizer::load(folder.path()); }); };
  CHECK(contains(load_error(), "no tokenizer in this folder; expected tokenizer.json"));
  write_file_atomically(folder / "tokenizer.json", "{\"model\": {\n\"vocab\": {\"a\": 1,}}}");
  CHECK(Tokenizer::is_in(folder.path()));
  CHECK(contains(load_error(), "tokenizer.json: line 2, column"));
  test::write_tiny_tokenizer(folder.path());
  write_json_file(folder / "tokenizer_config.json", {{"added_tokens_decoder", {{"300", {{"content", "<|other|>"}}}}}});
  CHECK(contains(load_error(), "the added token 300 \"<|other|>\" contradicts 300 \"<|im_start|>\""));
  write_json_file(folder / "tokenizer_config.json", {{"added_tokens_decoder", {{"x", {{"content", "<|other|>"}}}}}});
  CHECK(contains(load_error(), "added_tokens_decoder.x: the key is not a token id"));
}

TEST_CASE("more added tokens from tokenizer_config.json and added_tokens.json") {
  const test::TemporaryFolder folder;
  test::write_tiny_tokenizer(folder.path());
  write_json_file(folder / "tokenizer_config.json",
                  {{"added_tokens_decoder", {{"400", {{"content", "<|more|>"}, {"special", true}}}}}});
  write_json_file(folder / "added_tokens.json", {{"<|old|>", 401}, {"<|im_end|>", test::tiny_im_end}});
  const Tokenizer tokenizer = Tokenizer::load(folder.path());
  CHECK(tokenizer.encode("<|more|><|old|><|im_end|>", AddedTokens::recognize) == Ids{400, 401, test::tiny_im_end});
  CHECK(tokenizer.vocab_size() == 402);
  CHECK_FALSE(tokenizer.eos_id().has_value());
}
