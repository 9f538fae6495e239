#include "skrull/data/sample_report.h"

#include <string>

#include "skrull/data/loader.h"
#include "store_fixture.h"
#include "support/catch.h"

using namespace skrull;
using test::contains;
using test::StoreFixture;

TEST_CASE("length statistics") {
  StoreFixture fixture;
  const TokenStore store = fixture.of_lengths({5, 1200, 3, 40, 1200, 2});
  const LengthStatistics statistics = measure_lengths(store, all_samples(store));
  CHECK(statistics.longest_sample == 1);
  CHECK(describe_lengths(statistics) == "6 samples, 2,450 tokens, 2,444 of them trained; lengths 2 to 1,200, median 5");
  CHECK(measure_lengths(store, {0, 2, 3}).median == 5);
  CHECK_FALSE(position_limit_warning(store, statistics, 1200));
  const auto warning = position_limit_warning(store, statistics, 1024);
  REQUIRE(warning);
  CHECK(contains(*warning, "1,200 tokens (" + store.files()[0].string() + ":2), more than the 1,024 positions"));
}

TEST_CASE("a sample as text, its trained part marked") {
  StoreFixture fixture;
  const auto file = fixture.write(
      "a.jsonl", R"({"messages": [{"role": "user", "content": "1+1=\u0007"}, {"role": "assistant", "content": "2"}]})"
                 "\n{\"text\": \"\xC3\xA4\"}\n");
  const TokenStore store = fixture.open(fixture.request({file}));
  const std::string name = file.string();
  CHECK(describe_sample(store, 0, &fixture.encoder()) ==
        name + ":1: 12 tokens, the 2 trained ones between ⟦ and ⟧:\n<u1+1=?><a⟦2>⟧");
  CHECK(describe_sample(store, 0, nullptr) ==
        name + ":1: 12 tokens, the 2 trained ones between ⟦ and ⟧:\n256 117 49 43 49 61 7 257 256 97 ⟦50 257⟧");
  // The first byte of "ä" predicts the second: the character is cut where the trained part begins.
  CHECK(describe_sample(store, 1, &fixture.encoder()) ==
        name + ":2: 3 tokens, the 2 trained ones between ⟦ and ⟧:\n\xEF\xBF\xBD⟦\xEF\xBF\xBD>⟧");
}

TEST_CASE("long parts of a sample are shortened") {
  StoreFixture fixture;
  const TokenStore store = fixture.of_lengths({1000});
  const std::string text = describe_sample(store, 0, nullptr);
  CHECK(contains(text, "\n0 ⟦1 2 3 "));
  CHECK(contains(text, " 64 [... 903 tokens ...] 968 "));
  CHECK(contains(text, " 999⟧"));
  CHECK(text.size() < 700);
}
