#include "bpe.h"

#include <algorithm>
#include <map>
#include <string>

#include "byte_alphabet.h"
#include "data/errors.h"
#include "skrull/core/error.h"
#include "skrull/core/rng.h"
#include "support/catch.h"

using namespace skrull;

namespace {

using Ids = std::vector<std::int32_t>;
using Merges = std::vector<std::pair<std::string, std::string>>;

struct Example {
  BpeModel model;
  std::map<std::string, std::int32_t> ids;
  std::map<std::pair<std::string, std::string>, std::size_t> ranks;
};

/// A vocabulary of the letters a to d and of `count` random merges, ids in random order.
Example random_example(Rng& random, std::size_t count) {
  Example example;
  std::vector<std::string> tokens{"a", "b", "c", "d"};
  BpeBuilder builder;
  while (example.ranks.size() < count) {
    const std::string& left = tokens[random.below(tokens.size())];
    const std::string& right = tokens[random.below(tokens.size())];
    if (!example.ranks.emplace(std::pair(left, right), example.ranks.size()).second) continue;
    builder.add_merge(left, right);
    tokens.push_back(left + right);
  }
  random.shuffle(tokens);
  for (const std::string& token : tokens) {
    const auto id = static_cast<std::int32_t>(example.ids.size());
    if (example.ids.emplace(token, id).second) builder.add_token(token, id);
  }
  example.model = builder.build();
  return example;
}

/// The definition: merge the leftmost pair of lowest rank until there is none.
Ids encode_by_definition(const Example& example, const std::string& word) {
  std::vector<std::string> parts;
  for (const char letter : word) parts.emplace_back(1, letter);
  while (true) {
    std::size_t best = example.ranks.size();
    std::size_t at = 0;
    for (std::size_t i = 0; i + 1 < parts.size(); ++i) {
      const auto found = example.ranks.find({parts[i], parts[i + 1]});
      if (found == example.ranks.end() || found->second >= best) continue;
      best = found->second;
      at = i;
    }
    if (best == example.ranks.size()) break;
    parts[at] += parts[at + 1];
    parts.erase(parts.begin() + static_cast<std::ptrdiff_t>(at) + 1);
  }
  Ids ids;
  for (const std::string& part : parts) ids.push_back(example.ids.at(part));
  return ids;
}

Ids encode(const BpeModel& model, std::string_view word) {
  Ids ids;
  model.encode_word(word, ids);
  return ids;
}

}  // namespace

TEST_CASE("the byte-level alphabet") {
  CHECK(to_byte_alphabet("az!~") == "az!~");
  CHECK(to_byte_alphabet(" \n") == "\u0120\u010A");
  CHECK(to_byte_alphabet(std::string_view("\0", 1)) == "\u0100");
  CHECK(to_byte_alphabet("\x7F\xA0\xAD") == "\u0121\u0142\u0143");
  CHECK(to_byte_alphabet("\xC3\xA9") == "\u00C3\u00A9");
  for (int value = 0; value < 256; ++value) {
    const std::string byte(1, static_cast<char>(value));
    std::string back;
    REQUIRE(append_alphabet_bytes(to_byte_alphabet(byte), back));
    REQUIRE(back == byte);
  }
  std::string bytes = "kept";
  for (const char* foreign : {"a b", "\u4F60", "\u0144", "\xC3"}) CHECK_FALSE(append_alphabet_bytes(foreign, bytes));
  CHECK(bytes == "kept");
}

TEST_CASE("short and long words are merged as the definition says") {
  Rng random(3);
  for (int vocabulary = 0; vocabulary < 40; ++vocabulary) {
    const Example example = random_example(random, 5 + random.below(60));
    for (const std::size_t size : {1, 2, 3, 7, 33, 34, 35, 100, 127, 128, 129, 130, 300}) {
      std::string word;
      const std::size_t letters = 1 + random.below(4);
      for (std::size_t i = 0; i < size; ++i) word += static_cast<char>('a' + random.below(letters));
      INFO(word);
      const Ids expected = encode_by_definition(example, word);
      REQUIRE(encode(example.model, word) == expected);
      REQUIRE(encode(example.model, word) == expected);  // now from the cache
    }
  }
}

TEST_CASE("a word of a million equal letters") {
  BpeBuilder builder;
  builder.add_token("a", 0);
  builder.add_token("aa", 1);
  builder.add_token("aaaa", 2);
  builder.add_merge("a", "a");
  builder.add_merge("aa", "aa");
  const BpeModel model = builder.build();
  const Ids ids = encode(model, std::string(1000003, 'a'));
  REQUIRE(ids.size() == 250002);
  CHECK(Ids(ids.end() - 3, ids.end()) == Ids{2, 1, 0});
  CHECK(std::count(ids.begin(), ids.end(), 2) == 250000);
}

TEST_CASE("two models on one thread don't mix their caches") {
  Rng random(5);
  const Example first = random_example(random, 30);
  const Example second = random_example(random, 30);
  for (int round = 0; round < 200; ++round) {
    std::string word;
    for (std::size_t i = 0; i < 1 + random.below(12); ++i) word += static_cast<char>('a' + random.below(4));
    REQUIRE(encode(first.model, word) == encode_by_definition(first, word));
    REQUIRE(encode(second.model, word) == encode_by_definition(second, word));
  }
}

TEST_CASE("a vocabulary must be consistent") {
  BpeBuilder twice;
  twice.add_token("a", 0);
  twice.add_token("b", 0);
  CHECK(test::invalid_input_of([&] { twice.build(); }) == "the token \"b\" has the id 0 of another token");

  BpeBuilder unknown_part;
  unknown_part.add_token("a", 0);
  unknown_part.add_merge("a", "z");
  CHECK(test::invalid_input_of([&] { unknown_part.build(); }) ==
        "merge 0 needs the token \"z\", which is not in the vocabulary");

  BpeBuilder unknown_result;
  unknown_result.add_token("a", 0);
  unknown_result.add_token("\u0120", 1);
  unknown_result.add_merge("\u0120", "a");
  CHECK(test::contains(test::invalid_input_of([&] { unknown_result.build(); }), "\"\u0120a\""));

  BpeBuilder builder;
  CHECK_THROWS_AS(builder.add_token("a", -1), InvalidInput);
  CHECK_THROWS_AS(builder.add_token("a", BpeModel::id_limit), InvalidInput);
  for (const char* line : {"ab", "a b c", " ab", "ab ", ""})
    CHECK_THROWS_AS(builder.add_merge_line(line), InvalidInput);
  builder.add_token("a", 7);
  const BpeModel model = builder.build();
  CHECK(model.id_end() == 8);
  CHECK(model.token_bytes(7) == "a");
  CHECK(model.token_bytes(3).empty());
  CHECK(model.token_bytes(8).empty());
  CHECK(model.token_bytes(-1).empty());
  CHECK(model.find("a") == 7);
  CHECK_FALSE(model.find("b").has_value());
  CHECK(test::contains(test::invalid_input_of([&] { encode(model, "a\nb"); }), "0x0A"));
}
